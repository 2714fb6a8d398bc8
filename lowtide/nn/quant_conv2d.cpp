#include "lowtide/nn/quant_conv2d.h"

#include "lowtide/base/torch.h"
#include "lowtide/nn/layer_call.h"
#include "lowtide/nn/row_sums.h"

namespace lowtide {
namespace {

struct ConvCall : LayerCall {
  ConvShape shape;
};

// Over items and positions.
at::Tensor channel_sums(const at::Tensor& x) { return sum_rows(contiguous(x).permute({0, 2, 3, 1})); }

class ConvFunction : public torch::autograd::Function<ConvFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& /*x*/,
                            const at::Tensor& /*weight*/, const Optional<at::Tensor>& bias,
                            const c10::intrusive_ptr<ConvCall>& call) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->saved_data["bias"] = bias.has_value();
    at::Tensor y = call->engine->conv2d(call->input, call->weight, call->shape);
    if (bias) y.add_(bias->view({1, -1, 1, 1}));
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<ConvCall>(context->saved_data["call"].toCapsule());
    const LayerError error = call->quantise_error(gradients[0]);
    at::Tensor dx, db;
    if (call->needs_input_gradient) {
      dx = call->engine->conv2d_input_gradient(error.for_input, call->weight, call->shape);
    }
    const at::Tensor dw = call->engine->conv2d_weight_gradient(error.for_weight, call->input, call->shape);
    if (context->saved_data["bias"].toBool()) db = channel_sums(decode(error.for_weight));
    call->release();
    return {dx, dw, db, {}};
  }
};

}  // namespace

at::Tensor quant_conv2d(const QuantLayer& layer, LayerInput& x, const at::Tensor& weight,
                        const at::Tensor& bias, const ConvShape& shape, const ActivationRange& input_range,
                        bool training) {
  const auto call = c10::make_intrusive<ConvCall>();
  const at::Tensor& value = x.activation().value;
  layer.prepare(*call, value.requires_grad());
  call->shape = shape;
  call->input = input_range.encode(x, call->forward_bits(), training);
  {
    const at::NoGradGuard no_grad;
    call->weight = encode_rows(weight.detach(), call->forward_bits());
  }
  at::Tensor y = ConvFunction::apply(value, weight, optional(bias), call);
  layer.tell(y, shape.input[0] * shape.macs());
  return y;
}

QuantConv2dImpl::QuantConv2dImpl(const QuantConv2dOptions& conv_options) : options(conv_options) {
  const auto& o = options;
  weight = register_parameter("weight",
                              torch::zeros({o.out_channels, o.in_channels / o.groups, o.kernel, o.kernel})
                                  .contiguous(torch::MemoryFormat::ChannelsLast));
  if (o.bias) bias = register_parameter("bias", torch::zeros({o.out_channels}));
  input_range_.register_in(*this);
}

ConvShape QuantConv2dImpl::shape(at::IntArrayRef input) const {
  ConvShape shape;
  for (std::size_t i = 0; i < 4; ++i) {
    shape.input[i] = input[i];
    shape.weight[i] = weight.size(static_cast<std::int64_t>(i));
  }
  shape.stride = {options.stride, options.stride};
  shape.padding = {options.padding, options.padding};
  shape.groups = options.groups;
  return shape;
}

at::Tensor QuantConv2dImpl::forward(const Activation& x) {
  LayerInput input(x);
  return quant_conv2d(*this, input, weight, bias, shape(x.value.sizes()), input_range_, is_training());
}

}  // namespace lowtide
