#pragma once

#include <ATen/ATen.h>

namespace lowtide::cpu {

// Batch normalisation over N, H, W of a channels-last tensor. libtorch's own cuts its sums by the number of
// threads; these cut them by size alone, so the result does not depend on it.

struct BatchStatistics {
  at::Tensor mean;      // float32, a channel each
  at::Tensor variance;  // biased, likewise
};

BatchStatistics batch_statistics(const at::Tensor& x);

// (x - mean) * inverse_deviation * weight + bias
at::Tensor normalise(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& inverse_deviation,
                     const at::Tensor& weight, const at::Tensor& bias);

struct BatchNormGradients {
  at::Tensor input, weight, bias;
};

BatchNormGradients normalise_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                                      const at::Tensor& inverse_deviation, const at::Tensor& weight);

}  // namespace lowtide::cpu
