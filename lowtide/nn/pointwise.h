#pragma once

#include <ATen/ATen.h>

#include "lowtide/quant/activation.h"

// Functions of single numbers that libtorch computes in vectors, and otherwise in the rest of each thread's part: the last
// bit of a number there would depend on the number of threads. Here a tensor is cut by its size alone.
namespace lowtide {

at::Tensor sigmoid(const at::Tensor& x);
Activation gelu(const at::Tensor& x);  // with its range on a GPU

}  // namespace lowtide
