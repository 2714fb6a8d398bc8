#pragma once

#include <ATen/ATen.h>

#include "lowtide/engine/cpu/image_watcher.h"
#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/tiles.h"

// The products of a convolution, and of matrices, whose operands are all bytes. Groups of any size; those of a depthwise
// convolution have kernels of their own.

namespace lowtide::integer {

at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape, ImageWatcher* watcher,
                  const TileKernels& tiles);
// The same for shapes that are worth it: see winograd.h.
at::Tensor conv2d_winograd(const Quantized& x, const Quantized& w, const ConvShape& shape,
                           ImageWatcher* watcher, const TileKernels& tiles);
at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                                 const OtherGradient& other, ImageWatcher* watcher, const TileKernels& tiles);
// What it calls for some shapes, with where the result goes.
struct GradientTarget {
  at::Tensor dx;
  bool adds = false;  // to what is there
  at::Tensor pixels;  // added to those that lie a stride apart, where the stride is more than one
  ImageWatcher* watcher = nullptr;
};
// For kernels of three columns and more and a stride of one.
void conv2d_scaled_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                            const GradientTarget& to, const TileKernels& tiles);
// For shapes that are worth it: see winograd.h.
void conv2d_winograd_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                              const GradientTarget& to, const TileKernels& tiles);
at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                                  const TileKernels& tiles);

// One channel in, one channel out, as many groups as channels.
bool is_depthwise(const ConvShape& shape);
at::Tensor depthwise(const Quantized& x, const Quantized& w, const ConvShape& shape, ImageWatcher* watcher,
                     const TileKernels& tiles);
at::Tensor depthwise_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                                    ImageWatcher* watcher, const TileKernels& tiles);
at::Tensor depthwise_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                                     const TileKernels& tiles);

// Stacks of matrices of the same sizes, or two matrices.
at::Tensor product(const Quantized& a, const Quantized& b, const ProductShape& shape,
                   const TileKernels& tiles);

// Two matrices, the right one made ready once; its sums have at most kMostTerms terms.
class RightOperand;
std::unique_ptr<const RightOperand> pack_right(const Quantized& b, bool transposed);
at::Tensor product(const Quantized& a, const RightOperand& b, const TileKernels& tiles);

}  // namespace lowtide::integer
