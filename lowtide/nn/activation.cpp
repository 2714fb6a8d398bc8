#include "lowtide/nn/activation.h"

#include <torch/torch.h>

namespace lowtide {
namespace {

class NormaliseFunction : public torch::autograd::Function<NormaliseFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& /*weight*/, const at::Tensor& /*bias*/,
                            const Optional<at::Tensor>& residual, const c10::intrusive_ptr<NormCall>& norm) {
    cpu::MappedSum sum = cpu::map_and_add(x, norm->map, residual ? dense(*residual) : at::Tensor());
    norm->positive = sum.positive;
    norm->range = sum.range;
    context->saved_data["norm"] = c10::IValue::make_capsule(norm);
    context->saved_data["residual"] = residual.has_value();
    return sum.value;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto norm = c10::static_intrusive_pointer_cast<NormCall>(context->saved_data["norm"].toCapsule());
    const cpu::MapGradients result = norm->backward(gradients[0], context->saved_data["residual"].toBool());
    return {result.input, result.weight, result.bias, result.residual, {}};
  }
};

}  // namespace

const Quantized& Activation::encoded(const Range& in_range, int bits) const {
  const bool same = codes_->code.defined() && codes_->bits == bits && codes_->offset.is_same(in_range.min);
  if (!same) {
    const at::NoGradGuard no_grad;
    *codes_ = encode(value.detach(), in_range, bits);
  }
  return *codes_;
}

Activation carry_out(const c10::intrusive_ptr<NormCall>& norm, const Activation& residual) {
  Activation y =
      NormaliseFunction::apply(norm->take_input(), norm->weight, norm->bias, optional(residual.value), norm);
  y.range = norm->range;
  y.normalisation = norm;
  return y;
}

}  // namespace lowtide
