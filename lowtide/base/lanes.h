#pragma once

#include <cstdint>
#include <cstring>

// Sixteen numbers side by side: one AVX-512 register, two of AVX2, four of SSE, as the function they are used in is
// compiled for (see simd.h). They may only be used inside a function, never passed to one that is not inlined.

namespace lowtide {

inline constexpr int kSimdLanes = 16;

using Floats = float __attribute__((vector_size(64)));
using Ints = std::int32_t __attribute__((vector_size(64)));
using Words = std::uint32_t __attribute__((vector_size(64)));
using Bytes = std::uint8_t __attribute__((vector_size(16)));

// Macros, not functions: an inline function would be compiled once, for one instruction set, and called from all.
#define LOWTIDE_LOAD(type, from)                 \
  ({                                             \
    type loaded_;                                \
    std::memcpy(&loaded_, (from), sizeof(type)); \
    loaded_;                                     \
  })
// Sixteen bytes as Ints. By assignment: GCC 12 takes a __builtin_convertvector to lanes of four times the size apart, byte by
// byte.
#define LOWTIDE_LOAD_BYTES(from)                                    \
  ({                                                                \
    Ints wide_;                                                     \
    for (int k_ = 0; k_ < kSimdLanes; ++k_) wide_[k_] = (from)[k_]; \
    wide_;                                                          \
  })
#define LOWTIDE_STORE(to, value)                  \
  do {                                            \
    const auto stored_ = (value);                 \
    std::memcpy((to), &stored_, sizeof(stored_)); \
  } while (false)

}  // namespace lowtide
