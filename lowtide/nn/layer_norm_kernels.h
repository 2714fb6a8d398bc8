#pragma once

#include <cstdint>

#include "lowtide/nn/dropout_kernels.h"

// Layer normalisation of a residual's sum on a GPU: no torch, for nvcc. `stream` is a cudaStream_t.

namespace lowtide {

// Rows of so many numbers at most, a multiple of this.
inline constexpr int kMostNormedColumns = 1024, kNormedColumnMultiple = 128;

// sum = x + dropout(added), y = (sum - mean) / deviation · weight + bias, by rows.
struct ResidualNormArguments {
  const float* x = nullptr;
  const float* added = nullptr;  // or nothing: then the sum is x, and not written
  DropoutNoise dropout;
  const float* weight = nullptr;
  const float* bias = nullptr;
  double epsilon = 0;
  std::int64_t rows = 0;
  int columns = 0;

  float* sum = nullptr;  // out
  float* y = nullptr;
  float* mean = nullptr;     // a row each
  float* inverse = nullptr;  // of the deviation
};
void residual_norm_on_gpu(const ResidualNormArguments& a, void* stream);

// The gradients at x and at `added`, and those of weight and bias, summed in an order that only the matrix's size decides.
struct ResidualNormGradientArguments {
  const float* sum = nullptr;
  const float* gradient = nullptr;  // at y
  const float* weight = nullptr;
  const float* mean = nullptr;
  const float* inverse = nullptr;
  DropoutNoise dropout;
  std::int64_t rows = 0;
  int columns = 0;

  float* dx = nullptr;               // out
  float* dadded = nullptr;           // out, or nothing
  float* partial = nullptr;          // kNormParts × 2 columns
  float* weight_and_bias = nullptr;  // out: the gradient of the weight, then of the bias
};
inline constexpr int kNormParts = 264;
void residual_norm_gradient_on_gpu(const ResidualNormGradientArguments& a, void* stream);

}  // namespace lowtide
