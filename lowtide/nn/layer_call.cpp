#include "lowtide/nn/layer_call.h"

namespace lowtide {

LayerError quantise_error(const at::Tensor& output_gradient, const LayerCall& call) {
  const at::Tensor gradient = dense(output_gradient);
  const Quantized unquantised{gradient, {}, {}, 0};
  if (is_float_bits(call.bits.backward)) return {unquantised, unquantised};
  const Quantized error =
      encode(gradient, measure_range(gradient, RangeGroup::kTensor), call.bits.backward, call.noise);
  return {error, call.bifurcate ? unquantised : error};
}

Optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? Optional<at::Tensor>(tensor) : Optional<at::Tensor>();
}

void append(torch::autograd::variable_list& saved, const Quantized& q) {
  saved.insert(saved.end(), {q.code, q.scale, q.offset});
}

Quantized quantized_at(const torch::autograd::variable_list& saved, std::size_t first, int bits) {
  return {saved[first], saved[first + 1], saved[first + 2], bits};
}

}  // namespace lowtide
