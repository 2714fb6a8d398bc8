#pragma once

#include "lowtide/nn/layer_call.h"

namespace lowtide {

// The error of a layer that sees positions of several items: the gradient's rows over its last dimension lie in `items`
// equal blocks, and those at the same place of their blocks share a range. As a matrix of the rows.
LayerError quantise_batch_error(const LayerCall& call, const at::Tensor& gradient, std::int64_t items);

}  // namespace lowtide
