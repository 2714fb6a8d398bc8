#pragma once

#include <ATen/ATen.h>

namespace lowtide {

// Layer normalisation over all elements together, without weights: (x - mean) / sqrt(variance + 1e-5). Sums are cut by
// size alone, so the number of threads changes nothing.
at::Tensor tensor_norm(const at::Tensor& x);

}  // namespace lowtide
