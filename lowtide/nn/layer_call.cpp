#include "lowtide/nn/layer_call.h"

#include "lowtide/base/error.h"

namespace lowtide {

LayerError LayerCall::quantise_error(const at::Tensor& output_gradient, const Range& range) const {
  if (!input.code.defined())
    throw UserError(
        "a second backward pass of one forward pass, which keeps its codes for one; run the forward pass "
        "again");
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
