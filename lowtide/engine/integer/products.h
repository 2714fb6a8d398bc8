#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "lowtide/engine/cpu/image_watcher.h"
#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/tiles.h"

// The products of a convolution, and of matrices, whose operands are all bytes.

namespace lowtide::integer {

// Computed by the method that method.h chooses.
at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape, ImageWatcher* watcher,
                  const TileKernels& tiles);
at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                                 const OtherGradient& other, ImageWatcher* watcher, const TileKernels& tiles);
at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                                  const TileKernels& tiles);

// Stacks of matrices of the same sizes, or two matrices.
at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape,
                   const TileKernels& tiles);

// Two matrices, the right one made ready once; its sums have at most kMostTerms terms.
class RightOperand;
std::unique_ptr<const RightOperand> pack_right(const Quantized& b, bool transposed);
at::Tensor product(const Quantized& a, const RightOperand& b, const TileKernels& tiles);

}  // namespace lowtide::integer
