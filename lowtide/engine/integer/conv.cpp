#include "lowtide/engine/integer/conv_methods.h"
#include "lowtide/engine/integer/method.h"
#include "lowtide/engine/integer/products.h"
#include "lowtide/engine/pixels_apart.h"

namespace lowtide::integer {
namespace {

at::Tensor depthwise_gradient_plus(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                                   const OtherGradient& other, ImageWatcher* watcher,
                                   const TileKernels& tiles) {
  // The other gradient is added afterwards: before that there is nothing to watch.
  ImageWatcher* watches = other.value.defined() ? nullptr : watcher;
  return add_gradient(depthwise_input_gradient(dy, w, shape, watches, tiles), other);
}

}  // namespace

at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape, ImageWatcher* watcher,
                  const TileKernels& tiles) {
  switch (output_method(shape, tiles.set)) {
    case OutputMethod::kWinograd:
      return winograd_output(x, w, shape, watcher, tiles);
    case OutputMethod::kDepthwise:
      return depthwise_output(x, w, shape, watcher, tiles);
    case OutputMethod::kDirect:
      break;
  }
  return direct_output(x, w, shape, watcher, tiles);
}

at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                                 const OtherGradient& other, ImageWatcher* watcher,
                                 const TileKernels& tiles) {
  const InputGradientMethod method = input_gradient_method(shape, tiles.set);
  if (method == InputGradientMethod::kDepthwise)
    return depthwise_gradient_plus(dy, w, shape, other, watcher, tiles);
  const bool readable = other.value.defined() && other.value.is_contiguous(at::MemoryFormat::ChannelsLast);
  const bool accumulates = readable && other.stride == ConvShape{}.stride;
  const bool adds_pixels = readable && !accumulates && other.stride == shape.stride;
  const bool adds_later = other.value.defined() && !accumulates && !adds_pixels;
  at::Tensor dx =
      accumulates ? other.value
                  : at::empty(shape.input, dy.scale.options().memory_format(at::MemoryFormat::ChannelsLast));
  const GradientTarget to{.dx = dx,
                          .accumulates = accumulates,
                          .addend = adds_pixels ? other.value : at::Tensor(),
                          .watcher = adds_later ? nullptr : watcher};
  if (method == InputGradientMethod::kWinograd) {
    winograd_input_gradient(dy, w, shape, to, tiles);
  } else if (method == InputGradientMethod::kScaled) {
    scaled_input_gradient(dy, w, shape, to, tiles);
  } else {
    fixed_point_input_gradient(dy, w, shape, to, tiles);
  }
  return adds_later ? add_gradient(dx, other) : dx;
}

at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                                  const TileKernels& tiles) {
  switch (weight_gradient_method(shape, tiles.set)) {
    case WeightGradientMethod::kMatrixUnit:
      return matrix_weight_gradient(dy, x, shape, tiles);
    case WeightGradientMethod::kWinograd:
      return winograd_weight_gradient(dy, x, shape, tiles);
    case WeightGradientMethod::kDepthwise:
      return depthwise_weight_gradient(dy, x, shape, tiles);
    case WeightGradientMethod::kDirect:
      break;
  }
  return direct_weight_gradient(dy, x, shape, tiles);
}

}  // namespace lowtide::integer
