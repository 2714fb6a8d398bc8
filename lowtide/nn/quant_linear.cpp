#include "lowtide/nn/quant_linear.h"

#include <torch/torch.h>

#include "lowtide/base/torch_compat.h"
#include "lowtide/nn/layer_call.h"

namespace lowtide {
namespace {

struct LinearCall : LayerCall {
  int input_bits = 0, weight_bits = 0;  // of what was saved
};

// As a matrix of rows over the last dimension; codes and values alike.
Quantized as_matrix(const Quantized& q) {
  return {q.code.reshape({-1, q.code.size(-1)}), q.scale, q.offset, q.bits};
}

class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const Optional<at::Tensor>& bias,
                            const c10::intrusive_ptr<LinearCall>& call) {
    const Quantized input = encode(x, call->input_range, call->bits.forward);
    const Quantized matrix = encode(weight, measure_range(weight, RangeGroup::kRow), call->bits.forward);
    call->input_bits = input.bits;
    call->weight_bits = matrix.bits;
    torch::autograd::variable_list saved;
    append(saved, input);
    append(saved, matrix);
    context->save_for_backward(saved);
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->saved_data["bias"] = bias.has_value();
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    at::Tensor y = call->engine->product(as_matrix(input), matrix, {.transpose_b = true}).view(shape);
    if (bias) {
      y.add_(decode(encode(*bias, measure_range(*bias, RangeGroup::kTensor), call->bits.forward)));
    }
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<LinearCall>(context->saved_data["call"].toCapsule());
    const auto saved = context->get_saved_variables();
    const Quantized input = quantized_at(saved, 0, call->input_bits);
    const Quantized matrix = quantized_at(saved, 3, call->weight_bits);
    const LayerError error = quantise_error(gradients[0], *call);
    const Quantized weight_error = as_matrix(error.for_weight);
    at::Tensor dx, db;
    if (call->needs_input_gradient) {
      dx = call->engine->product(as_matrix(error.for_input), matrix, {}).view(input.code.sizes());
    }
    const at::Tensor dw = call->engine->product(weight_error, as_matrix(input), {.transpose_a = true});
    if (context->saved_data["bias"].toBool()) db = decode(weight_error).sum(0);
    return {dx, dw, db, {}};
  }
};

}  // namespace

QuantLinearImpl::QuantLinearImpl(const QuantLinearOptions& linear_options) : options(linear_options) {
  weight = register_parameter("weight", torch::zeros({options.out_features, options.in_features}));
  if (options.bias) bias = register_parameter("bias", torch::zeros({options.out_features}));
  input_range_.register_in(*this);
}

at::Tensor QuantLinearImpl::forward(const at::Tensor& x) {
  const auto call = c10::make_intrusive<LinearCall>();
  prepare(*call, x, input_range_, is_training());
  at::Tensor y = LinearFunction::apply(x, weight, optional(bias), call);
  // One item of the batch may be many rows: a sequence has one a position.
  const std::int64_t rows = x.numel() / x.size(-1) / x.size(0);
  tell(y, rows * options.in_features * options.out_features);
  return y;
}

}  // namespace lowtide
