#pragma once

#include <ATen/ATen.h>

namespace lowtide::cpu {

// What an optimiser does to a parameter, in one pass over it, its gradient and its state. Each number depends on those at
// its own place alone.

struct SgdUpdate {
  double rate, momentum;
  double decay;  // added to the gradient
};
void update(const SgdUpdate& by, const at::Tensor& parameter, const at::Tensor& gradient,
            const at::Tensor& velocity);

struct AdamUpdate {
  double rate, beta1, beta2, epsilon;
  double correction1, correction2;  // of the moments, for having started from 0
  double decay;                     // added to the gradient
  double shrinkage;                 // of the parameter, before all else
};
void update(const AdamUpdate& by, const at::Tensor& parameter, const at::Tensor& gradient,
            const at::Tensor& first_moment, const at::Tensor& second_moment);

}  // namespace lowtide::cpu
