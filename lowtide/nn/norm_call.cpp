#include "lowtide/nn/norm_call.h"

namespace lowtide {

at::Tensor NormCall::take_input() {
  at::Tensor taken = input;
  input = producer->output_is_cheap() ? at::Tensor() : input.detach();
  return taken;
}

ImageWatcher* NormCall::gradient_watcher() {
  if (!back_) {
    back_ = std::make_unique<cpu::MapBackward>(input.defined() ? input : producer->output(), map, scatter,
                                               positive);
    input.reset();
    positive.reset();
  }
  return back_.get();
}

cpu::MapGradients NormCall::backward(const at::Tensor& gradient, bool wants_residual) {
  gradient_watcher();
  cpu::MapGradients result = back_->of(dense(gradient), wants_residual, producer->error_format());
  producer->announce_error(result.input, result.input_range, result.input_codes);
  back_.reset();
  return result;
}

}  // namespace lowtide
