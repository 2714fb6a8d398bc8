#include "lowtide/engine/cuda/single_conv.h"

#include "lowtide/base/cuda_stream.h"
#include "lowtide/engine/cuda/conv_arguments.h"
#include "lowtide/engine/cuda/prepared_conv.h"

namespace lowtide::cuda {
namespace {

bool is_on_gpu(const Quantized& q) { return q.code.is_cuda() && is_bytes(q); }

at::Tensor empty_images(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().dtype(at::kFloat).memory_format(at::MemoryFormat::ChannelsLast));
}

Quantized in_order(const Quantized& q) { return {contiguous(q.code), q.scale, q.offset, q.bits}; }

}  // namespace

bool has_output(const Quantized& x, const Quantized& w, const ConvShape& shape) {
  return is_on_gpu(x) && shape.groups == 1 && !shape.is_dilated() && has_kernels({w.code, w.bits});
}

bool has_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape) {
  return has_output(dy, w, shape) && has_conv_input_gradient(geometry_of(shape));
}

bool has_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape) {
  return is_on_gpu(dy) && is_on_gpu(x) && !shape.is_dilated() && shape.groups == 1 &&
         shape.weight[2] * shape.weight[3] <= kMostTaps;
}

at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) {
  const auto weight = pack(w, /*keeps=*/false);
  const Quantized input = in_order(x);
  const at::Tensor y =
      empty_images({shape.input[0], shape.weight[0], shape.output_height(), shape.output_width()}, x.code);
  OutputArguments a;
  a.g = geometry_of(shape);
  a.x = codes_of(input);
  a.w = weight->layer;
  a.y = y.data_ptr<float>();
  conv_output(a, current_cuda_stream());
  return y;
}

at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape) {
  const auto weight = pack(w, /*keeps=*/true);
  const Quantized error = in_order(dy);
  const at::Tensor dx = empty_images(shape.input, dy.code);
  InputGradientArguments a;
  a.g = geometry_of(shape);
  a.dy = codes_of(error);
  a.w = weight->layer;
  a.dx = dx.data_ptr<float>();
  conv_input_gradient(a, current_cuda_stream());
  return dx;
}

at::Tensor conv2d_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape) {
  const Quantized error = in_order(dy), input = in_order(x);
  const at::Tensor dw = empty_images(shape.weight, dy.code);
  WeightGradientArguments a;
  a.g = geometry_of(shape);
  const auto bytes = dy.code.options().dtype(at::kByte);
  const at::Tensor work = at::zeros({static_cast<std::int64_t>(weight_gradient_work_bytes(a.g))}, bytes);
  const at::Tensor products =
      at::empty({static_cast<std::int64_t>(weight_gradient_product_bytes(a.g))}, bytes);
  a.dy = codes_of(error);
  a.x = codes_of(input);
  a.work = work.data_ptr();
  a.products = products.data_ptr();
  a.dw = dw.data_ptr<float>();
  conv_weight_gradient(a, current_cuda_stream());
  return dw;
}

}  // namespace lowtide::cuda
