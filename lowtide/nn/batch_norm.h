#pragma once

#include <ATen/ATen.h>

namespace lowtide {

inline constexpr double kNormEpsilon = 1e-5;

// Batch normalisation over N, H, W. In training it uses the batch's statistics and moves the
// running ones by `momentum` (the variance unbiased, as everywhere); else it uses the running ones.
at::Tensor batch_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& running_mean, const at::Tensor& running_variance, bool training,
                      double momentum);

}  // namespace lowtide
