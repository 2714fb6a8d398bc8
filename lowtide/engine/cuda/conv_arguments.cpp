#include "lowtide/engine/cuda/conv_arguments.h"

namespace lowtide::cuda {

bool is_bytes(const Quantized& q) { return fits_bytes(q.bits) && q.scale.numel() == 1; }

Codes codes_of(const Quantized& q) {
  return {q.code.data_ptr<std::uint8_t>(), q.scale.data_ptr<float>(), q.offset.data_ptr<float>(), q.bits};
}

ConvGeometry geometry_of(const ConvShape& shape) {
  const auto number = [](std::int64_t n) { return static_cast<int>(n); };
  ConvGeometry g;
  g.images = number(shape.input[0]);
  g.inputs = number(shape.input[1]);
  g.height = number(shape.input[2]);
  g.width = number(shape.input[3]);
  g.outputs = number(shape.weight[0]);
  g.rows = number(shape.output_height());
  g.cols = number(shape.output_width());
  g.kernel_rows = number(shape.weight[2]);
  g.kernel_cols = number(shape.weight[3]);
  g.stride_rows = number(shape.stride[0]);
  g.stride_cols = number(shape.stride[1]);
  g.pad_rows = number(shape.padding[0]);
  g.pad_cols = number(shape.padding[1]);
  g.depthwise = shape.groups > 1;
  return g;
}

}  // namespace lowtide::cuda
