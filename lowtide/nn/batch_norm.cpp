#include "lowtide/nn/batch_norm.h"

#include <torch/torch.h>

#include "lowtide/nn/batch_norm_cpu.h"
#include "lowtide/quant/quantizer.h"

namespace lowtide {
namespace {

class BatchNormFunction : public torch::autograd::Function<BatchNormFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& running_mean,
                            const at::Tensor& running_variance, double momentum) {
    const at::Tensor x = dense(input);
    const cpu::BatchStatistics statistics = cpu::batch_statistics(x);
    const auto n = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
    const double unbias = n > 1 ? n / (n - 1) : 1.0;
    running_mean.mul_(1 - momentum).add_(statistics.mean, momentum);
    running_variance.mul_(1 - momentum).add_(statistics.variance, momentum * unbias);
    const at::Tensor inverse_deviation = (statistics.variance + kNormEpsilon).rsqrt();
    context->save_for_backward({x, weight, statistics.mean, inverse_deviation});
    return cpu::normalise(x, statistics.mean, inverse_deviation, weight, bias);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto result = cpu::normalise_backward(dense(gradients[0]), saved[0], saved[2], saved[3], saved[1]);
    return {result.input, result.weight, result.bias, {}, {}, {}};
  }
};

}  // namespace

at::Tensor batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& running_mean, const at::Tensor& running_variance, bool training,
                      double momentum) {
  if (training && x.device().is_cpu()) {
    return BatchNormFunction::apply(x, weight, bias, running_mean, running_variance, momentum);
  }
  return torch::batch_norm(x, weight, bias, running_mean, running_variance, training, momentum, kNormEpsilon,
                           /*cudnn_enabled=*/true);
}

}  // namespace lowtide
