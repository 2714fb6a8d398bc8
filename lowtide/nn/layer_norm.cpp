#include "lowtide/nn/layer_norm.h"

#include "lowtide/base/torch.h"
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

}  // namespace

LayerNormImpl::LayerNormImpl(std::int64_t size, double epsilon) : epsilon_(epsilon) {
  weight = register_parameter("weight", torch::ones({size}));
  bias = register_parameter("bias", torch::zeros({size}));
}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) const {
  return LayerNormFunction::apply(x.contiguous(), weight, bias, epsilon_);
}

}  // namespace lowtide
