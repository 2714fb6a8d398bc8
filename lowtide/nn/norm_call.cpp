#include "lowtide/nn/norm_call.h"

namespace lowtide {

at::Tensor NormCall::take_input() {
  at::Tensor taken = input;
  input = producer->output_is_cheap() ? at::Tensor() : input.detach();
  return taken;
}

cpu::MapGradients NormCall::backward(const at::Tensor& gradient, bool wants_residual) {
  const at::Tensor x = input.defined() ? input : producer->output();
  cpu::MapGradients result =
      cpu::map_backward(dense(gradient), x, map, inverse_deviation, positive, wants_residual);
  producer->announce_error(result.input, result.input_range);
  input.reset();
  positive.reset();
  return result;
}

}  // namespace lowtide
