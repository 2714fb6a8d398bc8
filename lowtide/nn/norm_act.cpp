#include "lowtide/nn/norm_act.h"

#include <torch/torch.h>

#include "lowtide/nn/batch_norm.h"

namespace lowtide {

NormActImpl::NormActImpl(const NormActOptions& norm_options) : options(norm_options) {
  weight = register_parameter("weight", torch::ones({options.channels}));
  bias = register_parameter("bias", torch::zeros({options.channels}));
  running_mean = register_buffer("running_mean", torch::zeros({options.channels}));
  running_variance = register_buffer("running_variance", torch::ones({options.channels}));
}

at::Tensor NormActImpl::forward(const at::Tensor& x, const at::Tensor& residual) {
  // In place: the normalisation's backward pass needs its input, never its output.
  at::Tensor y = batch_norm(x, weight, bias, running_mean, running_variance, is_training(), momentum());
  if (residual.defined()) y.add_(residual);
  if (options.relu) y.relu_();
  return y;
}

double NormActImpl::momentum() {
  constexpr double kMomentum = 0.1;
  if (!re_estimating_ || !is_training()) return kMomentum;
  return 1.0 / static_cast<double>(++batches_seen_);
}

void NormActImpl::start_re_estimation() {
  re_estimating_ = true;
  batches_seen_ = 0;
}

void NormActImpl::end_re_estimation() { re_estimating_ = false; }

}  // namespace lowtide
