#pragma once

#include <cstdint>

#include "lowtide/nn/dropout_kernels.h"

// The passes of a tensor's normalisation on a GPU, with ReLU before and dropout after it: no torch, for nvcc. Numbers that one
// pass hands to the next stay on the device. `stream` is a cudaStream_t.

namespace lowtide {

// What is normalised: x, or max(x, 0); and what is done with the result.
struct NormedTensor {
  const float* x = nullptr;
  std::int64_t n = 0;
  bool relu = false;
  DropoutNoise dropout;
};

// Sums are made in double, in an order that only n decides. `work` has room for kTensorMeansWork numbers.
inline constexpr std::int64_t kTensorMeansWork = 2 * 1056;

// mean, and factor = 1 / sqrt(variance + epsilon)
struct TensorStatisticsArguments {
  NormedTensor of;
  double epsilon = 0;
  double* work = nullptr;
  float* mean = nullptr;  // out, one number each
  float* factor = nullptr;
};
void tensor_statistics_on_gpu(const TensorStatisticsArguments& a, void* stream);

// y = dropout((x - mean) factor)
struct NormaliseArguments {
  NormedTensor of;
  const float* mean = nullptr;
  const float* factor = nullptr;
  float* y = nullptr;
};
void normalise_on_gpu(const NormaliseArguments& a, void* stream);

// With g the gradient at dropout's input and z = (x - mean) factor: dx = factor (g - mean(g) - z mean(g z)), masked by ReLU.
struct NormaliseGradientArguments {
  NormedTensor of;
  const float* gradient = nullptr;
  const float* mean = nullptr;
  const float* factor = nullptr;
  double* work = nullptr;
  float* means = nullptr;  // two numbers
  float* dx = nullptr;
};
void normalise_gradient_on_gpu(const NormaliseGradientArguments& a, void* stream);

}  // namespace lowtide
