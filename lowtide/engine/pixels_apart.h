#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>

#include "lowtide/engine/conv_norm.h"

namespace lowtide {

// Of images, the pixels that lie a stride apart, from the first on: a view.
at::Tensor pixels_apart(const at::Tensor& images, const std::array<std::int64_t, 2>& stride);

// The same of codes, in memory of their own.
Quantized pixels_apart(const Quantized& images, const std::array<std::int64_t, 2>& stride);

// A 1×1 convolution with a stride reads one pixel of several.
bool skips_pixels(const ConvShape& shape);
// The same convolution of the pixels that it reads, which are all neighbours then.
ConvShape of_pixels_read(ConvShape shape);

// Adds what another reader computed to a gradient of the whole input.
at::Tensor add_gradient(at::Tensor dx, const OtherGradient& other);

}  // namespace lowtide
