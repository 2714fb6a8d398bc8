#include "lowtide/nn/layer_norm.h"

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/torch.h"
#include "lowtide/base/torch_compat.h"
#include "lowtide/nn/layer_call.h"
#include "lowtide/nn/layer_norm_kernels.h"
#include "lowtide/nn/row_sums.h"

namespace lowtide {
namespace {

// libtorch sums the gradients of weight and bias in as many parts as there are threads.
class LayerNormFunction : public torch::autograd::Function<LayerNormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
    const auto [y, mean, inverse_deviation] =
        at::native_layer_norm(x, {weight.size(0)}, weight, bias, epsilon);
    context->save_for_backward({x, weight, bias, mean, inverse_deviation});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &mean = saved[3],
                     &inverse_deviation = saved[4];
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor dx = std::get<0>(at::native_layer_norm_backward(
        dy, x, {weight.size(0)}, mean, inverse_deviation, weight, bias, {true, false, false}));
    const at::Tensor normalised = (x - mean).mul_(inverse_deviation);
    return {dx, sum_rows(dy * normalised), sum_rows(dy), {}};
  }
};

#if defined(LOWTIDE_WITH_CUDA)
bool has_kernel(const at::Tensor& x) {
  const std::int64_t columns = x.size(-1);
  return x.is_cuda() && x.scalar_type() == at::kFloat && columns % kNormedColumnMultiple == 0 &&
         columns <= kMostNormedColumns;
}

struct ResidualNormCall : torch::CustomClassHolder {
  double epsilon = 0;
  DropoutNoise dropout;
};

// The norm of x, or of x + dropout(added). The backward pass draws dropout's mask again instead of keeping it.
class ResidualNormFunction : public torch::autograd::Function<ResidualNormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& given,
                            const Optional<at::Tensor>& given_added, const at::Tensor& weight,
                            const at::Tensor& bias, const c10::intrusive_ptr<ResidualNormCall>& call) {
    const at::Tensor x = given.contiguous(), added = given_added ? given_added->contiguous() : at::Tensor();
    const at::Tensor sum = given_added ? at::empty_like(x) : x;
    at::Tensor y = at::empty_like(x);
    const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
    const at::Tensor mean = at::empty({rows}, x.options()), inverse = at::empty({rows}, x.options());
    ResidualNormArguments a;
    a.x = x.data_ptr<float>();
    a.added = added.defined() ? added.data_ptr<float>() : nullptr;
    a.dropout = call->dropout;
    a.weight = weight.data_ptr<float>();
    a.bias = bias.data_ptr<float>();
    a.epsilon = call->epsilon;
    a.rows = rows;
    a.columns = static_cast<int>(columns);
    a.sum = added.defined() ? sum.data_ptr<float>() : nullptr;
    a.y = y.data_ptr<float>();
    a.mean = mean.data_ptr<float>();
    a.inverse = inverse.data_ptr<float>();
    residual_norm_on_gpu(a, current_cuda_stream());
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->saved_data["has_added"] = added.defined();
    context->save_for_backward({sum, weight, mean, inverse});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto call =
        c10::static_intrusive_pointer_cast<ResidualNormCall>(context->saved_data["call"].toCapsule());
    const auto saved = context->get_saved_variables();
    const at::Tensor &sum = saved[0], gradient = gradients[0].contiguous();
    const std::int64_t columns = sum.size(-1);
    const at::Tensor dx = at::empty_like(sum);
    const bool drops = call->dropout.scale != 0;
    const at::Tensor dadded = drops ? at::empty_like(sum) : dx;
    const at::Tensor partial = at::empty({kNormParts * 2 * columns}, sum.options()),
                     both = at::empty({2, columns}, sum.options());
    ResidualNormGradientArguments a;
    a.sum = sum.data_ptr<float>();
    a.gradient = gradient.data_ptr<float>();
    a.weight = saved[1].data_ptr<float>();
    a.mean = saved[2].data_ptr<float>();
    a.inverse = saved[3].data_ptr<float>();
    a.dropout = call->dropout;
    a.rows = sum.numel() / columns;
    a.columns = static_cast<int>(columns);
    a.dx = dx.data_ptr<float>();
    a.dadded = drops ? dadded.data_ptr<float>() : nullptr;
    a.partial = partial.data_ptr<float>();
    a.weight_and_bias = both.data_ptr<float>();
    residual_norm_gradient_on_gpu(a, current_cuda_stream());
    const bool has_added = context->saved_data["has_added"].toBool();
    return {dx, has_added ? dadded : at::Tensor(), both[0], both[1], {}};
  }
};
#endif

}  // namespace

LayerNormImpl::LayerNormImpl(std::int64_t size, double epsilon) : epsilon_(epsilon) {
  weight = register_parameter("weight", torch::ones({size}));
  bias = register_parameter("bias", torch::zeros({size}));
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) const {
#if defined(LOWTIDE_WITH_CUDA)
  if (has_kernel(x)) {
    const auto call = c10::make_intrusive<ResidualNormCall>();
    call->epsilon = epsilon_;
    return ResidualNormFunction::apply(x, Optional<at::Tensor>(), weight, bias, call);
  }
#endif
  return LayerNormFunction::apply(x.contiguous(), weight, bias, epsilon_);
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x, const at::Tensor& added,
                                  const Dropout& dropout) const {
#if defined(LOWTIDE_WITH_CUDA)
  if (has_kernel(x)) {
    const auto call = c10::make_intrusive<ResidualNormCall>();
    call->epsilon = epsilon_;
    call->dropout = dropout->draw();
    return ResidualNormFunction::apply(x, Optional<at::Tensor>(added), weight, bias, call);
  }
#endif
  return forward(x + dropout->forward(added));
}

}  // namespace lowtide
