#pragma once

#include "lowtide/engine/conv_shape.h"
#include "lowtide/engine/cuda/kernels.h"
#include "lowtide/quant/quantized.h"

// What kernels are told of tensors.

namespace lowtide::cuda {

// Codes of a byte, with one range for all.
bool is_bytes(const Quantized& q);

Codes codes_of(const Quantized& q);
ConvGeometry geometry_of(const ConvShape& shape);

}  // namespace lowtide::cuda
