#pragma once

#include <ATen/ATen.h>

// A parameter, its gradient and its state are read straight on in memory, one beside the other.

namespace lowtide {

// The gradient as it is, or a copy laid out in memory as the parameter is.
at::Tensor laid_out_as(const at::Tensor& parameter, const at::Tensor& gradient);

// The numbers of an optimiser's state, which is laid out as the parameter is.
float* state_of(const at::Tensor& parameter, const at::Tensor& state);

}  // namespace lowtide
