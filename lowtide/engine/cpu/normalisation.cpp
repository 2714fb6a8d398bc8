#include "lowtide/engine/cpu/normalisation.h"

#include <algorithm>
#include <cmath>

#include "lowtide/base/error.h"

namespace lowtide::cpu {

Normalisation start_normalisation(const NormParameters& norm, bool relu, std::int64_t elements,
                                  const ChannelStatistics* batch) {
  LOWTIDE_CHECK(batch != nullptr || !norm.uses_batch, "a normalisation by statistics that were not taken");
  const auto channels = static_cast<std::size_t>(norm.weight.numel());
  const auto* weight = norm.weight.data_ptr<float>();
  const auto* bias = norm.bias.data_ptr<float>();
  auto* running_mean = norm.running_mean.data_ptr<float>();
  auto* running_variance = norm.running_variance.data_ptr<float>();
  const auto n = static_cast<double>(elements);
  const double unbias = n > 1 ? n / (n - 1) : 1.0;
  const auto move = [rate = norm.momentum](float& running, double now) {
    running = static_cast<float>((1 - rate) * static_cast<double>(running) + rate * now);
  };
  Normalisation result;
  auto& [map, scatter] = result;
  map.relu = relu;
  map.bias.assign(bias, bias + channels);
  scatter.of_batch = norm.uses_batch;
  for (KeptVector<float>* of : {&map.mean, &map.factor, &scatter.inverse_deviation, &scatter.max_deviation})
    of->resize(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const float mean = norm.uses_batch ? batch->mean[c] : running_mean[c];
    const float variance = norm.uses_batch ? batch->variance[c] : running_variance[c];
    const float inverse = 1.0f / std::sqrt(variance + static_cast<float>(kNormEpsilon));
    map.mean[c] = mean;
    map.factor[c] = inverse * weight[c];
    scatter.inverse_deviation[c] = inverse;
    if (batch != nullptr) scatter.max_deviation[c] = std::max(mean - batch->low[c], batch->high[c] - mean);
    if (!norm.uses_batch) continue;
    move(running_mean[c], mean);
    move(running_variance[c], unbias * variance);
  }
  return result;
}

}  // namespace lowtide::cpu
