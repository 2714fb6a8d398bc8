#pragma once

// A function marked LOWTIDE_SIMD is compiled for AVX-512, AVX2 and plain x86-64, and the machine's best is
// chosen when the program starts. With -ffp-contract=off all of them give the same bits.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define LOWTIDE_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LOWTIDE_SIMD
#endif
