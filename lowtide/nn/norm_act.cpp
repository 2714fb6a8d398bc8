#include "lowtide/nn/norm_act.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "lowtide/nn/batch_norm.h"

namespace lowtide {

NormActImpl::NormActImpl(const NormActOptions& norm_options) : options(norm_options) {
  weight = torch::ones({options.channels});
  bias = torch::zeros({options.channels});
  weight = options.frozen ? register_buffer("weight", weight) : register_parameter("weight", weight);
  bias = options.frozen ? register_buffer("bias", bias) : register_parameter("bias", bias);
  running_mean = register_buffer("running_mean", torch::zeros({options.channels}));
  running_variance = register_buffer("running_variance", torch::ones({options.channels}));
}

Activation NormActImpl::forward(const Activation& x, const Activation& residual) {
  if (fuses(x)) return carry_out(start(x), residual);
  // In place: the normalisation's backward pass needs its input, never its output.
  at::Tensor y = normalise(x);
  if (residual.value.defined()) y.add_(residual.value);
  if (options.relu) y.relu_();
  return y;
}

Activation NormActImpl::deferred(const Activation& x) {
  if (!fuses(x)) return forward(x);
  Activation y;
  y.pending = start(x);
  return y;
}

at::Tensor NormActImpl::normalise(const at::Tensor& x) {
  if (!options.frozen || uses_batch()) {
    return batch_norm(x, weight, bias, running_mean, running_variance, uses_batch(), momentum());
  }
  // Nothing here has a gradient but x, and that needs the factor alone: no activation is kept.
  const at::Tensor factor = weight * (running_variance + kNormEpsilon).rsqrt();
  const at::Tensor shift = bias - running_mean * factor;
  return torch::addcmul(shift.view({1, -1, 1, 1}), x, factor.view({1, -1, 1, 1}));
}

bool NormActImpl::uses_batch() const { return is_training() && (!options.frozen || re_estimating_); }

bool NormActImpl::fuses(const Activation& x) const {
  return uses_batch() && !options.frozen && x.producer && x.producer->engine->fuses() &&
         x.value.device().is_cpu();
}

c10::intrusive_ptr<NormCall> NormActImpl::start(const Activation& x) {
  const torch::NoGradGuard no_grad;
  const at::Tensor input = dense(x.value.detach());
  const cpu::ChannelStatistics statistics =
      x.producer->moments ? x.producer->moments->of(input) : cpu::ChannelMoments().of(input);
  x.producer->moments.reset();
  auto call = c10::make_intrusive<NormCall>();
  call->input = x.value;
  call->producer = x.producer;
  call->weight = weight;
  call->bias = bias;
  call->map.relu = options.relu;
  const std::int64_t count = input.numel() / options.channels;
  const auto n = static_cast<double>(count);
  const double unbias = n > 1 ? n / (n - 1) : 1.0, rate = momentum();
  for (std::int64_t c = 0; c < options.channels; ++c) {
    const float mean = statistics.mean[static_cast<std::size_t>(c)];
    const float variance = statistics.variance[static_cast<std::size_t>(c)];
    const float inverse = 1.0f / std::sqrt(variance + static_cast<float>(kNormEpsilon));
    call->map.mean.push_back(mean);
    call->map.factor.push_back(inverse * weight.data_ptr<float>()[c]);
    call->map.bias.push_back(bias.data_ptr<float>()[c]);
    call->scatter.inverse_deviation.push_back(inverse);
    call->scatter.reach.push_back(std::max(mean - statistics.low[static_cast<std::size_t>(c)],
                                           statistics.high[static_cast<std::size_t>(c)] - mean));
    const auto move = [rate](float& running, double now) {
      running = static_cast<float>((1 - rate) * static_cast<double>(running) + rate * now);
    };
    move(running_mean.data_ptr<float>()[c], mean);
    move(running_variance.data_ptr<float>()[c], unbias * variance);
  }
  call->range = call->map.range(statistics);
  return call;
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
