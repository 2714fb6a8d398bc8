#pragma once

#include <ATen/ATen.h>

#include "lowtide/engine/cpu/image_watcher.h"
#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/tiles.h"

// The methods that method.h chooses among. All operands are bytes; groups may have any size.

namespace lowtide::integer {

at::Tensor direct_output(const Quantized& x, const Quantized& w, const ConvShape& shape,
                         ImageWatcher* watcher, const TileKernels& tiles);
at::Tensor winograd_output(const Quantized& x, const Quantized& w, const ConvShape& shape,
                           ImageWatcher* watcher, const TileKernels& tiles);
at::Tensor depthwise_output(const Quantized& x, const Quantized& w, const ConvShape& shape,
                            ImageWatcher* watcher, const TileKernels& tiles);

// Where an input gradient goes.
struct GradientTarget {
  at::Tensor dx;
  bool accumulates = false;  // adds to what dx holds
  at::Tensor addend;         // or else, where defined, is added at the pixels that lie a stride apart
  ImageWatcher* watcher = nullptr;
};

void fixed_point_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                                const GradientTarget& to, const TileKernels& tiles);
// For a stride of one.
void scaled_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                           const GradientTarget& to, const TileKernels& tiles);
// For a stride of one.
void winograd_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                             const GradientTarget& to, const TileKernels& tiles);
at::Tensor depthwise_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                                    ImageWatcher* watcher, const TileKernels& tiles);

at::Tensor direct_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                                  const TileKernels& tiles);
at::Tensor matrix_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                                  const TileKernels& tiles);
at::Tensor winograd_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                                    const TileKernels& tiles);
at::Tensor depthwise_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                                     const TileKernels& tiles);

}  // namespace lowtide::integer
