#include "lowtide/nn/quant_conv2d.h"

#include <torch/torch.h>

#include "lowtide/base/torch_compat.h"
#include "lowtide/nn/layer_call.h"
#include "lowtide/nn/placeholder.h"
#include "lowtide/nn/row_sums.h"
#include "lowtide/nn/strided_input.h"

namespace lowtide {
namespace {

// The product; the input's codes are in the call already.
at::Tensor convolve(const at::Tensor& weight, ConvCall& call) {
  call.weight = encode(weight, measure_range(weight, RangeGroup::kRow), call.bits.forward);
  return call.output(call.moments.get());
}

// Over items and positions.
at::Tensor channel_sums(const at::Tensor& x) { return sum_rows(dense(x).permute({0, 2, 3, 1})); }

struct ConvGradients {
  at::Tensor input, weight, bias;
};

ConvGradients convolve_backward(const at::Tensor& gradient, ConvCall& call, const at::Tensor& onto = {},
                                ImageWatcher* watcher = nullptr) {
  const LayerError error = call.quantise_error(gradient);
  ConvGradients result;
  if (call.needs_input_gradient) {
    result.input =
        call.engine->conv2d_input_gradient(error.for_input, call.weight, call.shape, onto, watcher);
  }
  result.weight = call.engine->conv2d_weight_gradient(error.for_weight, call.input, call.shape);
  if (call.bias.defined()) result.bias = channel_sums(decode(error.for_weight));
  call.release();
  return result;
}

class ConvFunction : public torch::autograd::Function<ConvFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& /*x*/,
                            const at::Tensor& weight, const Optional<at::Tensor>& /*bias*/,
                            const c10::intrusive_ptr<ConvCall>& call) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return convolve(weight, *call);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<ConvCall>(context->saved_data["call"].toCapsule());
    const ConvGradients result = convolve_backward(gradients[0], *call);
    return {whole_input_gradient(result.input, *call), result.weight, result.bias, {}};
  }
};

// Gives its input on as a second output. Both readers' gradients are summed here, so that the normalisation that made
// the input can watch.
class BranchFunction : public torch::autograd::Function<BranchFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& x, const at::Tensor& weight,
                                                const Optional<at::Tensor>& /*bias*/,
                                                const c10::intrusive_ptr<NormCall>& normalisation,
                                                const c10::intrusive_ptr<ConvCall>& call) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    if (normalisation) context->saved_data["norm"] = c10::IValue::make_capsule(normalisation);
    return {convolve(weight, *call), x};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<ConvCall>(context->saved_data["call"].toCapsule());
    ImageWatcher* watcher = nullptr;
    if (const auto norm = context->saved_data.find("norm"); norm != context->saved_data.end()) {
      watcher = c10::static_intrusive_pointer_cast<NormCall>(norm->second.toCapsule())->gradient_watcher();
    }
    at::Tensor other = gradients[1];
    if (is_placeholder(other)) other = std::move(call->gradient_of_pixels);
    const ConvGradients result = convolve_backward(gradients[0], *call, other, watcher);
    return {result.input, result.weight, result.bias, {}, {}};
  }
};

// A normalisation and the convolution that reads it: between them there are codes, never floats.
class NormConvFunction : public torch::autograd::Function<NormConvFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& /*norm_weight*/, const at::Tensor& /*norm_bias*/,
                            const at::Tensor& weight, const Optional<at::Tensor>& /*bias*/,
                            const c10::intrusive_ptr<NormCall>& norm,
                            const c10::intrusive_ptr<ConvCall>& call) {
    call->input = cpu::encode_mapped(x, norm->map, call->input_range, call->bits.forward);
    context->saved_data["norm"] = c10::IValue::make_capsule(norm);
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return convolve(weight, *call);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto norm = c10::static_intrusive_pointer_cast<NormCall>(context->saved_data["norm"].toCapsule());
    const auto call = c10::static_intrusive_pointer_cast<ConvCall>(context->saved_data["call"].toCapsule());
    const ConvGradients conv = convolve_backward(gradients[0], *call, {}, norm->gradient_watcher());
    const cpu::MapGradients result = norm->backward(conv.input, /*wants_residual=*/false);
    return {result.input, result.weight, result.bias, conv.weight, conv.bias, {}, {}};
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

c10::intrusive_ptr<ConvCall> QuantConv2dImpl::start(const at::Tensor& x) const {
  auto call = c10::make_intrusive<ConvCall>();
  for (int i = 0; i < 4; ++i) {
    call->shape.input[i] = x.size(i);
    call->shape.weight[i] = weight.size(i);
  }
  call->shape.stride = {options.stride, options.stride};
  call->shape.padding = {options.padding, options.padding};
  call->shape.groups = options.groups;
  if (bias.defined()) call->bias = bias.detach();
  prepare(*call, x.requires_grad());
  // A convolution without a bias is one that a normalisation follows.
  if (is_training() && call->engine->fuses() && !bias.defined()) {
    call->moments = std::make_unique<cpu::ChannelMoments>();
  }
  return call;
}

Activation QuantConv2dImpl::finish(at::Tensor value, const c10::intrusive_ptr<ConvCall>& call) const {
  Activation y(std::move(value));
  y.producer = call;
  tell(y.value, call->shape.input[0] * call->shape.macs());
  return y;
}

Activation QuantConv2dImpl::forward(const Activation& x) {
  if (x.pending) return forward_normalised(x.pending);
  const auto call = start(x.value);
  call->input_range = input_range_.of(x, call->bits.forward, is_training());
  call->input = x.encoded(call->input_range, call->bits.forward);
  call->summed_by = x.summed_by;
  keep_only_what_is_read(*call);
  return finish(ConvFunction::apply(x.value, weight, optional(bias), call), call);
}

std::pair<Activation, Activation> QuantConv2dImpl::branch(const Activation& x) {
  const auto call = start(x.value);
  if (!call->engine->fuses() || !call->needs_input_gradient) return {forward(x), x};
  call->input_range = input_range_.of(x, call->bits.forward, is_training());
  call->input = x.encoded(call->input_range, call->bits.forward);
  const torch::autograd::variable_list outputs =
      BranchFunction::apply(x.value, weight, optional(bias), x.normalisation, call);
  Activation other = x;
  other.value = outputs[1];
  other.summed_by = call;
  return {finish(outputs[0], call), other};
}

Activation QuantConv2dImpl::forward_normalised(const c10::intrusive_ptr<NormCall>& norm) {
  const auto call = start(norm->input);
  if (is_float_bits(call->bits.forward) || call->bits.forward > kByteBits) return forward(carry_out(norm));
  call->needs_input_gradient = true;  // the normalisation's own parameters have gradients
  call->input_range = input_range_.track(norm->range);
  return finish(NormConvFunction::apply(norm->take_input(), norm->weight, norm->bias, weight, optional(bias),
                                        norm, call),
                call);
}

}  // namespace lowtide
