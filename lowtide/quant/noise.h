#pragma once

#include <cstdint>

#include "lowtide/base/random.h"
#include "lowtide/quant/quantizer_kernels.h"

namespace lowtide {

// The noise of stochastic rounding, uniform in (-0.5, 0.5), as a function of the element's index alone.
// Elements are numbered in blocks of 64: lane = index % 16, word = index / 16 % 4, and the Philox counter is
// index / 64 * 16 + lane. So 16 neighbours run in the lanes of one vector register, and one Philox block
// serves four of them; any device computes the same number for the same element.
inline constexpr int kNoiseLanes = 16;
inline constexpr int kNoiseBlock = 4 * kNoiseLanes;

// 23 random bits k give (k + 1/2) 2^-23 - 1/2: symmetric, never ±0.5, and exact in float32 at every step.
LOWTIDE_HOST_DEVICE inline float noise_value(std::uint32_t word) {
  return static_cast<float>(static_cast<std::int32_t>(word >> 9)) * 0x1p-23f + (0x1p-24f - 0.5f);
}

LOWTIDE_HOST_DEVICE inline float noise_at(const NoiseCounter& counter, std::int64_t index) {
  const std::uint32_t lane = static_cast<std::uint32_t>(index % kNoiseLanes);
  const int word = static_cast<int>(index / kNoiseLanes % 4);
  const std::uint32_t position = static_cast<std::uint32_t>(index / kNoiseBlock) * kNoiseLanes + lane;
  const Philox::Block block =
      Philox::block(counter.key0, counter.key1, position, counter.c1, counter.c2, counter.c3);
  return noise_value(block.word[word]);
}

}  // namespace lowtide
