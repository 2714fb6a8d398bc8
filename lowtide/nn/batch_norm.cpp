#include "lowtide/nn/batch_norm.h"

#include "lowtide/base/torch.h"

namespace lowtide {

BatchNormImpl::BatchNormImpl(const BatchNormOptions& norm_options) : options(norm_options) {
  weight = torch::ones({options.channels});
  bias = torch::zeros({options.channels});
  weight = options.frozen ? register_buffer("weight", weight) : register_parameter("weight", weight);
  bias = options.frozen ? register_buffer("bias", bias) : register_parameter("bias", bias);
  running_mean = register_buffer("running_mean", torch::zeros({options.channels}));
  running_variance = register_buffer("running_variance", torch::ones({options.channels}));
}

NormParameters BatchNormImpl::start_call() {
  NormParameters call{weight.detach(), bias.detach(), running_mean, running_variance};
  call.uses_batch = is_training() && (!options.frozen || re_estimating_);
  if (call.uses_batch) call.momentum = momentum();
  return call;
}

double BatchNormImpl::momentum() {
  constexpr double kMomentum = 0.1;
  return re_estimating_ ? 1.0 / static_cast<double>(++batches_seen_) : kMomentum;
}

void BatchNormImpl::start_re_estimation() {
  re_estimating_ = true;
  batches_seen_ = 0;
}

void BatchNormImpl::end_re_estimation() { re_estimating_ = false; }

}  // namespace lowtide
