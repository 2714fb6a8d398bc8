#pragma once

#include <ATen/ATen.h>

#include "lowtide/nn/dropout.h"

namespace lowtide {

// Layer normalisation over all elements together, without weights: (x - mean) / sqrt(variance + 1e-5). Sums are cut by
// size alone, so the number of threads changes nothing.
at::Tensor tensor_norm(const at::Tensor& x);

// dropout(tensor_norm(relu(x))).
at::Tensor relu_norm_dropout(const at::Tensor& x, const Dropout& dropout);

}  // namespace lowtide
