#pragma once

#include "lowtide/engine/engine.h"

// Convolutions that stand alone, outside of trunks: the same kernels, a product at a time.

namespace lowtide::cuda {

// Whether there are kernels for a product of these operands.
bool has_output(const Quantized& x, const Quantized& w, const ConvShape& shape);
bool has_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape);
bool has_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape);

at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape);
at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape);
at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape);

}  // namespace lowtide::cuda
