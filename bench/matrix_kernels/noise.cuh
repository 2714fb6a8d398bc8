#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "lowtide/quant/noise.h"
#include "lowtide/quant/noise_lanes.cuh"
#include "lowtide/quant/quantizer_kernels.h"

// Noise as the kernels draw it, and what dropout makes of it.

namespace lowtide::cuda::bench {

inline const NoiseCounter kCounter{11, 22, 33, 44, 55};  // NOLINT

inline constexpr float kKeptScale = 1 / 0.9f;
__device__ inline float factor_at(std::int64_t i, const NoiseCounter& counter) {
  const float v = __fadd_rn(__fdiv_rn(1.0f, kKeptScale), noise_at(counter, i));
  return static_cast<float>(__float2int_rn(fminf(fmaxf(v, 0.0f), 1.0f))) * kKeptScale;
}

// y = x, each number dropped or scaled.
void drop(const float* x, std::size_t n, float* y);

}  // namespace lowtide::cuda::bench
