#pragma once

#include "lowtide/base/torch.h"
#include "tests/testing.h"

// What the tests of optimisers share on both devices.

namespace lowtide {

inline torch::Tensor flag(bool value) { return torch::tensor(value); }

inline double rate_at(int step) { return 0.1 / (1 + step); }

// Long enough for several threads.
struct Kernel : torch::nn::Module {
  Kernel() { weight = register_parameter("weight", normal({40, 130, 3, 3}, 1)); }
  torch::Tensor weight;
};

}  // namespace lowtide
