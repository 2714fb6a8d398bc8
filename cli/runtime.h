#pragma once

#include <string>

namespace lowtide {

// "lowtide 0.1.0 (git 1a2b3c4)"
std::string program_version();

// OpenBLAS takes a CPU that is newer than itself for one of 2004, whose matrix products in floats are two to three times
// slower. It can be told better only before it is loaded, so the program starts itself anew with OPENBLAS_CORETYPE set. Does
// nothing where it knows the CPU, where that is set, and where the BLAS is another one.
void use_fitting_blas(char** argv);

// libtorch as fast as it can be: all cores (or `threads`), and AVX-512 where the machine has it, which
// Debian's build does not use unless told. To be called before the first tensor.
void prepare_torch(int threads);

}  // namespace lowtide
