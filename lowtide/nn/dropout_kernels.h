#pragma once

#include <cstdint>

#include "lowtide/quant/quantizer_kernels.h"

// Dropout on a GPU: no torch, for nvcc. `stream` is a cudaStream_t.

namespace lowtide {

// The noise of a dropout that is fused into another kernel. Element i gets the same number as in dropout_on_gpu.
struct DropoutNoise {
  float scale = 0;  // of what is kept; 0: no dropout
  NoiseCounter counter;
  const std::int64_t* device_step = nullptr;
};

// y = x · mask, and the mask's codes: those that 1 has when it is rounded by the counter's noise to 0 or `scale`.
struct DropoutArguments {
  const float* x = nullptr;
  float* y = nullptr;
  std::uint8_t* code = nullptr;
  std::int64_t n = 0;
  float scale = 0;
  NoiseCounter counter;
  const std::int64_t* device_step = nullptr;
};
void dropout_on_gpu(const DropoutArguments& a, void* stream);

struct MaskArguments {
  const float* x = nullptr;
  const std::uint8_t* code = nullptr;
  float* y = nullptr;
  std::int64_t n = 0;
  float scale = 0;
};
void mask_on_gpu(const MaskArguments& a, void* stream);

}  // namespace lowtide
