#include "lowtide/nn/quant_conv2d.h"

#include <torch/torch.h>

#include "lowtide/base/torch_compat.h"
#include "lowtide/nn/layer_call.h"

namespace lowtide {
namespace {

struct ConvCall : LayerCall {
  ConvShape shape;
  int input_bits = 0, weight_bits = 0;  // of what was saved
};

class ConvFunction : public torch::autograd::Function<ConvFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const Optional<at::Tensor>& bias,
                            const c10::intrusive_ptr<ConvCall>& call) {
    const Quantized input = encode(x, call->input_range, call->bits.forward);
    const Quantized filter = encode(weight, measure_range(weight, RangeGroup::kRow), call->bits.forward);
    call->input_bits = input.bits;
    call->weight_bits = filter.bits;
    torch::autograd::variable_list saved;
    append(saved, input);
    append(saved, filter);
    context->save_for_backward(saved);
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->saved_data["bias"] = bias.has_value();
    at::Tensor y = call->engine->conv2d(input, filter, call->shape);
    if (bias) y.add_(bias->view({1, -1, 1, 1}));
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<ConvCall>(context->saved_data["call"].toCapsule());
    const auto saved = context->get_saved_variables();
    const Quantized input = quantized_at(saved, 0, call->input_bits);
    const Quantized filter = quantized_at(saved, 3, call->weight_bits);
    const LayerError error = quantise_error(gradients[0], *call);
    at::Tensor dx, db;
    if (call->needs_input_gradient)
      dx = call->engine->conv2d_input_gradient(error.for_input, filter, call->shape);
    const at::Tensor dw = call->engine->conv2d_weight_gradient(error.for_weight, input, call->shape);
    if (context->saved_data["bias"].toBool()) db = decode(error.for_weight).sum({0, 2, 3});
    return {dx, dw, db, {}};
  }
};

}  // namespace

QuantConv2dImpl::QuantConv2dImpl(const QuantConv2dOptions& conv_options) : options(conv_options) {
  const auto& o = options;
  weight = register_parameter("weight",
                              torch::zeros({o.out_channels, o.in_channels / o.groups, o.kernel, o.kernel})
                                  .contiguous(torch::MemoryFormat::ChannelsLast));
  if (o.bias) bias = register_parameter("bias", torch::zeros({o.out_channels}));
  input_range_.register_in(*this);
}

at::Tensor QuantConv2dImpl::forward(const at::Tensor& x) {
  const auto call = c10::make_intrusive<ConvCall>();
  for (int i = 0; i < 4; ++i) {
    call->shape.input[i] = x.size(i);
    call->shape.weight[i] = weight.size(i);
  }
  call->shape.stride = {options.stride, options.stride};
  call->shape.padding = {options.padding, options.padding};
  call->shape.groups = options.groups;
  prepare(*call, x, input_range_, is_training());
  at::Tensor y = ConvFunction::apply(x, weight, optional(bias), call);
  tell(y, call->shape.macs());
  return y;
}

}  // namespace lowtide
