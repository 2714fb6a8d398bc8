#pragma once

#include <ATen/ATen.h>

#include "lowtide/nn/layer_call.h"

namespace lowtide {

// A 1×1 convolution with a stride reads one pixel of several. Where the engine makes codes of bytes, its call becomes that of
// a convolution of these pixels alone: their codes are what is kept, and the gradient at the others is known to be zero.
void keep_only_what_is_read(ConvCall& call);

// The gradient at the whole input from that at the pixels that were read. Where the convolution that sums this input's
// gradients goes in the same steps, it is handed over to it, and autograd gets a placeholder.
at::Tensor whole_input_gradient(at::Tensor of_what_was_read, const ConvCall& call);

}  // namespace lowtide
