#pragma once

#include <ATen/ATen.h>

#include <cstdint>

// What an optimiser does to a parameter and its state. Each number depends on those at its own place alone.

namespace lowtide {

struct SgdUpdate {
  double rate, momentum;
  double decay;  // added to the gradient
};

struct AdamUpdate {
  double rate, beta1, beta2, epsilon;
  double decay;      // added to the gradient
  double shrinkage;  // of the parameter, before all else
};

// In one pass. Adam's `step` counts from 1: its moments started from 0, and are corrected for that.
namespace cpu {
void update(const SgdUpdate& by, const at::Tensor& parameter, const at::Tensor& gradient,
            const at::Tensor& velocity);
void update(const AdamUpdate& by, std::int64_t step, const at::Tensor& parameter, const at::Tensor& gradient,
            const at::Tensor& first_moment, const at::Tensor& second_moment);
}  // namespace cpu

// The same of plain tensor operations, for any device. Where `halted` (one bool there) is true every number keeps its
// value, whatever the gradient is; the host does not ask.
namespace masked {
void update(const SgdUpdate& by, const at::Tensor& halted, const at::Tensor& parameter,
            const at::Tensor& gradient, const at::Tensor& velocity);

// What Adam's moments are divided by, one number each: the same for all parameters.
struct MomentCorrections {
  at::Tensor first, second;
};
MomentCorrections moment_corrections(double beta1, double beta2, const at::Tensor& step);

void update(const AdamUpdate& by, const MomentCorrections& corrections, const at::Tensor& halted,
            const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& first_moment,
            const at::Tensor& second_moment);

// tensor = value, unless halted.
void assign(const at::Tensor& tensor, const at::Tensor& value, const at::Tensor& halted);
// A count of steps, one number, goes up by one, unless halted.
void count(const at::Tensor& steps, const at::Tensor& halted);
}  // namespace masked

}  // namespace lowtide
