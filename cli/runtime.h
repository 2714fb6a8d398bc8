#pragma once

#include <string>

namespace lowtide {

// "lowtide 0.1.0 (git 1a2b3c4)"
std::string program_version();

// libtorch as fast as it can be: all cores (or `threads`), and AVX-512 where the machine has it, which
// Debian's build does not use unless told. To be called before the first tensor.
void prepare_torch(int threads);

}  // namespace lowtide
