#pragma once

#include <cuda_runtime.h>

#include "lowtide/nn/dropout_kernels.h"
#include "lowtide/quant/noise.h"
#include "lowtide/quant/range.cuh"
#include "lowtide/quant/vector.cuh"

// Rows that stay in the registers of a warp, for CUDA kernels.

namespace lowtide {

inline constexpr int kWarp = 32, kThreads = 256, kRowsPerBlock = kThreads / kWarp;
inline constexpr unsigned kAll = 0xffffffffu;

__device__ inline float sum_of_warp(float x) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(kAll, x, apart);
  return x;
}
__device__ inline float most_of_warp(float x) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, apart));
  return x;
}

// A warp a row. A lane has four numbers of each block of 128: of a half of it, those whose noise is drawn with one block of
// Philox's words.
inline constexpr int kFour = 4;
__device__ inline int column_of(int lane, int j) {
  return j / kFour * kNoiseBlock + lane / kNoiseLanes * (kNoiseBlock / 2) + j % kFour * kNoiseLanes +
         lane % kNoiseLanes;
}

// The factors of dropout for the numbers of a lane, in rows of whole blocks.
template <int kNumbers>
__device__ void draw_whole_factors(const DropoutNoise& dropout, int length, std::int64_t row, int lane,
                                   float (&factor)[kNumbers]) {
  const NoiseCounter counter = counter_at(dropout.counter, dropout.device_step);
  const Encoder encoder = Encoder::make(0.0f, dropout.scale, 1.0f);
#pragma unroll
  for (int j = 0; j < kNumbers; j += kFour) {
    if (j / kFour * kNoiseBlock >= length) break;
    const auto block = static_cast<std::uint32_t>(row * (length / kNoiseBlock) + j / kFour);
    const Philox::Block words = Philox::block(
        counter.key0, counter.key1, block * kNoiseLanes + static_cast<std::uint32_t>(lane % kNoiseLanes),
        counter.c1, counter.c2, counter.c3);
    const bool upper = lane >= kNoiseLanes;
    const std::uint32_t pair[2]{upper ? words.word[2] : words.word[0], upper ? words.word[3] : words.word[1]};
#pragma unroll
    for (int i = 0; i < kFour; ++i) {
      const float noise = noise_value(pair[i / 2] >> (i % 2 * 16) & 0xffffu);
      factor[j + i] = static_cast<float>(encoder.code(1.0f, noise)) * encoder.scale;
    }
  }
}

// The same in rows of any length.
template <int kNumbers>
__device__ void draw_factors(const DropoutNoise& dropout, int length, std::int64_t row, int lane,
                             float (&factor)[kNumbers]) {
  if (dropout.scale == 0.0f) {
#pragma unroll
    for (float& f : factor) f = 1.0f;
    return;
  }
  if (length % kNoiseBlock == 0) return draw_whole_factors(dropout, length, row, lane, factor);
  const NoiseCounter counter = counter_at(dropout.counter, dropout.device_step);
  const Encoder encoder = Encoder::make(0.0f, dropout.scale, 1.0f);
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) {
    const int column = column_of(lane, j);
    if (column >= length) continue;
    factor[j] =
        static_cast<float>(encoder.code(1.0f, noise_at(counter, row * length + column))) * encoder.scale;
  }
}

}  // namespace lowtide
