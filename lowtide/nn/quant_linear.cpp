#include "lowtide/nn/quant_linear.h"

#include "lowtide/base/torch.h"
#include "lowtide/base/torch_compat.h"
#include "lowtide/nn/batch_error.h"
#include "lowtide/nn/rounded_rows.h"
#include "lowtide/nn/row_sums.h"

namespace lowtide {
namespace {

// As a matrix of rows over the last dimension; codes and values alike.
Quantized as_matrix(const Quantized& q) {
  return {q.code.reshape({-1, q.code.size(-1)}), q.scale, q.offset, q.bits};
}

struct LinearCall : LayerCall {
  ErrorRange error = ErrorRange::kTensor;
};

class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const Optional<at::Tensor>& bias,
                            const c10::intrusive_ptr<LinearCall>& call) {
    call->weight = encode(weight, measure_range(weight, RangeGroup::kRow), call->forward_bits());
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->saved_data["bias"] = bias.has_value();
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    const at::Tensor rounded_bias = bias ? rounded(*bias, call->forward_bits()) : at::Tensor();
    return call->engine->linear(as_matrix(call->input), call->weight, rounded_bias).view(shape);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<LinearCall>(context->saved_data["call"].toCapsule());
    const at::Tensor& dy = gradients[0];
    const LayerError error = call->error == ErrorRange::kPosition
                                 ? quantise_batch_error(*call, dy, dy.size(0))
                                 : call->quantise_error(dy);
    const Quantized weight_error = as_matrix(error.for_weight);
    at::Tensor dx, db;
    if (call->needs_input_gradient) {
      dx = call->engine->product(as_matrix(error.for_input), call->weight, {}).view(call->input.code.sizes());
    }
    const at::Tensor dw = call->engine->product(weight_error, as_matrix(call->input), {.transpose_a = true});
    if (context->saved_data["bias"].toBool()) db = sum_rows(weight_error);
    call->release();
    return {dx, dw, db, {}};
  }
};

}  // namespace

at::Tensor quant_linear(const QuantLayer& layer, LayerInput& x, const at::Tensor& weight,
                        const at::Tensor& bias, ErrorRange error, const ActivationRange& input_range,
                        bool training) {
  const auto call = c10::make_intrusive<LinearCall>();
  const at::Tensor& value = x.activation().value;
  layer.prepare(*call, value.requires_grad());
  call->error = error;
  call->input = input_range.encode(x, call->forward_bits(), training);
  at::Tensor y = LinearFunction::apply(value, weight, optional(bias), call);
  layer.tell(y, value.numel() * weight.size(0));
  return y;
}

QuantLinearImpl::QuantLinearImpl(const QuantLinearOptions& linear_options) : options(linear_options) {
  weight = register_parameter("weight", torch::zeros({options.out_features, options.in_features}));
  if (options.bias) bias = register_parameter("bias", torch::zeros({options.out_features}));
  input_range_.register_in(*this);
}

at::Tensor QuantLinearImpl::forward(const Activation& x) {
  LayerInput input(x);
  return read(input);
}

at::Tensor QuantLinearImpl::read(LayerInput& x) {
  return quant_linear(*this, x, weight, bias, options.error, input_range_, is_training());
}

}  // namespace lowtide
