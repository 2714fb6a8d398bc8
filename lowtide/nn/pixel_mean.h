#pragma once

#include <ATen/ATen.h>

namespace lowtide {

// The mean over all pixels of each image and channel, as before a classifier: [items, channels] of [items, channels, rows,
// columns].
at::Tensor pixel_mean(const at::Tensor& x);

}  // namespace lowtide
