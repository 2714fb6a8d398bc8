#include "lowtide/nn/layer_call.h"

#include "lowtide/base/error.h"

namespace lowtide {

void LayerCall::expect_one_backward() const {
  if (at::GradMode::is_enabled())
    throw UserError(
        "a gradient of a gradient, which quantised layers do not have; expected a backward pass without "
        "create_graph=True");
  if (!input.code.defined())
    throw UserError(
        "a second backward pass of one forward pass, which keeps its codes for one; run the forward pass "
        "again");
}

LayerError LayerCall::quantise_error(const at::Tensor& output_gradient, const Range& range) const {
  expect_one_backward();
  return lowtide::quantise_error(output_gradient, error(), range);
}

void LayerCall::release() {
  input = {};
  weight = {};
}

Optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? Optional<at::Tensor>(tensor) : Optional<at::Tensor>();
}

}  // namespace lowtide
