#pragma once

#include <string>

namespace lowtide {

// "lowtide 0.1.0 (git 1a2b3c4)"
std::string program_version();

// That, and what it was built with: libtorch, the engines, CUDA.
std::string version_text();

// Libraries that read their settings when they are loaded, before the program begins: where a setting is missing, the program
// starts itself anew with it. What the user has set stays.
// - OpenMP's threads wait for work by spinning for milliseconds, and two runs on one machine take each other's cores for it.
//   They spin for some microseconds (GOMP_SPINCOUNT), unless OMP_WAIT_POLICY or GOMP_SPINCOUNT is set.
// - OpenBLAS takes a CPU that is newer than itself for one of 2004, whose matrix products in floats are two to three times
//   slower: it is told one that fits (OPENBLAS_CORETYPE).
void tune_libraries(char** argv);

// libtorch as fast as it can be: all cores that it may use (or `threads`), and AVX-512 where the machine has it, which
// Debian's build does not use unless told. To be called before the first tensor.
void prepare_torch(int threads);

}  // namespace lowtide
