#pragma once

#include "lowtide/engine/cuda/kernels.h"

// Depthwise convolutions: 3 × 3 taps, in steps of 1 or 2, a multiple of 16 channels, any padding. Of the arguments' weights
// `depthwise` is read alone.

namespace lowtide::cuda {

inline constexpr int kDepthwiseKernel = 3, kDepthwiseTaps = 9;
inline constexpr int kDepthwiseUnit = 16;  // channels, of a byte each: what a lane copies at once

// Of one channel, what its taps' sums are made with.
struct alignas(16) DepthwiseChannel {
  std::uint32_t row[kDepthwiseKernel];  // a row of taps: three codes, then 0
  int zero;                             // value = scale · (code - zero) + residual
  double residual;
  float scale;
  int sum;  // Σ (code - zero)
};

inline bool has_depthwise(int channels, int kernel_rows, int kernel_cols) {
  return channels % kDepthwiseUnit == 0 && kernel_rows == kDepthwiseKernel && kernel_cols == kDepthwiseKernel;
}

void encode_depthwise_weights(const WeightLayer* layers, int count, void* stream);

// With statistics where they are asked for.
void depthwise_output(const OutputArguments& a, void* stream);
// There can be no other reader's gradient.
void depthwise_input_gradient(const InputGradientArguments& a, void* stream);
std::size_t depthwise_weight_gradient_work_bytes(int channels);
void depthwise_weight_gradient(const WeightGradientArguments& a, void* stream);

}  // namespace lowtide::cuda
