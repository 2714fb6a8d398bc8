#include "lowtide/nn/layer_call.h"

#include "lowtide/base/error.h"

namespace lowtide {

LayerError LayerCall::quantise_error(const at::Tensor& output_gradient, const Range& range) const {
  LOWTIDE_CHECK(input.code.defined(), "a layer's call serves one backward pass");
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
