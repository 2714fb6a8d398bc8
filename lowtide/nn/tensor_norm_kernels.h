#pragma once

#include <cstdint>

// The passes of a tensor's normalisation on a GPU: no torch, for nvcc. Numbers that one pass hands to the next stay on the
// device. `stream` is a cudaStream_t.

namespace lowtide {

// Means of x and of (x - a)(y - b), with one number a and b each. Summed in double, in an order that only n decides.
struct TensorMeansArguments {
  const float* x = nullptr;
  const float* y = nullptr;
  const float* a = nullptr;
  const float* b = nullptr;
  std::int64_t n = 0;
  double* work = nullptr;  // kTensorMeansWork
  float* plain = nullptr;  // out, one number each
  float* product = nullptr;
};
inline constexpr std::int64_t kTensorMeansWork = 2 * 1024;
void tensor_means_on_gpu(const TensorMeansArguments& a, void* stream);

// y = (x - mean) factor
struct NormaliseArguments {
  const float* x = nullptr;
  const float* mean = nullptr;
  const float* factor = nullptr;
  float* y = nullptr;
  std::int64_t n = 0;
};
void normalise_on_gpu(const NormaliseArguments& a, void* stream);

// dx = ((x - mean) slope + g - shift) factor
struct NormaliseGradientArguments {
  const float* x = nullptr;
  const float* g = nullptr;
  const float* mean = nullptr;
  const float* slope = nullptr;
  const float* shift = nullptr;
  const float* factor = nullptr;
  float* dx = nullptr;
  std::int64_t n = 0;
};
void normalise_gradient_on_gpu(const NormaliseGradientArguments& a, void* stream);

}  // namespace lowtide
