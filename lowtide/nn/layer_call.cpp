#include "lowtide/nn/layer_call.h"

#include "lowtide/base/error.h"

namespace lowtide {

void LayerCall::announce_error(const at::Tensor& gradient, const Range& range, const Quantized& codes) {
  announced_ = gradient.data_ptr();
  announced_version_ = gradient._version();
  announced_range_ = range;
  announced_codes_ = codes;
}

std::optional<StretchEncoder::Format> LayerCall::error_format() const {
  const StretchEncoder::Format format{bits.backward, noise};
  if (bifurcate || !format.fits()) return std::nullopt;
  return format;
}

LayerError LayerCall::quantise_error(const at::Tensor& output_gradient) const {
  LOWTIDE_CHECK(input.code.defined(), "a layer's call serves one backward pass");
  const bool announced =
      output_gradient.data_ptr() == announced_ && output_gradient._version() == announced_version_;
  if (announced && announced_codes_.code.defined()) return {announced_codes_, announced_codes_};
  const at::Tensor gradient = dense(output_gradient);
  const Quantized unquantised{gradient, {}, {}, 0};
  if (is_float_bits(bits.backward)) return {unquantised, unquantised};
  const Range range = announced ? announced_range_ : measure_range(gradient, RangeGroup::kTensor);
  const Quantized error = encode(gradient, range, bits.backward, noise);
  return {error, bifurcate ? unquantised : error};
}

void LayerCall::release() {
  input = {};
  weight = {};
  announced_codes_ = {};
}

at::Tensor ConvCall::output(ImageWatcher* watcher) const {
  LOWTIDE_CHECK(input.code.defined(), "a layer's call serves one backward pass");
  at::Tensor y = engine->conv2d(input, weight, shape, bias.defined() ? nullptr : watcher);
  if (bias.defined()) y.add_(bias.view({1, -1, 1, 1}));
  return y;
}

bool ConvCall::output_is_cheap() const {
  const bool bytes = input.bits != 0 && input.bits <= kByteBits;
  if (!engine->fuses() || !bytes) return false;
  // A core does 200 products of bytes in the time it takes to fetch four floats from memory: up to eight quads an
  // element, computing costs no more than keeping.
  constexpr std::int64_t kQuad = 4, kCheapQuads = 8;
  const std::int64_t quads = (shape.weight[1] + kQuad - 1) / kQuad * shape.weight[2] * shape.weight[3];
  return recompute || (shape.groups == 1 && quads <= kCheapQuads);
}

Optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? Optional<at::Tensor>(tensor) : Optional<at::Tensor>();
}

}  // namespace lowtide
