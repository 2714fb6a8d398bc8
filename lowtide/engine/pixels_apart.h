#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>

#include "lowtide/engine/conv_norm.h"

namespace lowtide {

// The pixels of images that lie a stride apart, from the first on. A view: nothing is copied.
at::Tensor pixels_apart(const at::Tensor& images, const std::array<std::int64_t, 2>& stride);

// The same for codes, which are copied.
Quantized pixels_apart(const Quantized& images, const std::array<std::int64_t, 2>& stride);

// Whether some pixels are never read: those between the strides of a 1×1 convolution.
bool skips_pixels(const ConvShape& shape);
// What is left of such a convolution when its input is pixels_apart(): the same weights with a stride of 1.
ConvShape of_pixels_read(ConvShape shape);

// Adds the gradient that another reader of the same input computed.
at::Tensor add_gradient(at::Tensor dx, const OtherGradient& other);

}  // namespace lowtide
