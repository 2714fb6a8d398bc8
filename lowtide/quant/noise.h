#pragma once

#include <cstdint>

#include "lowtide/base/random.h"
#include "lowtide/quant/quantizer_kernels.h"

namespace lowtide {

// The noise of stochastic rounding, uniform in (-0.5, 0.5), as a function of the element's index alone.
// Elements are numbered in blocks of 128: lane = index % 16, half = index / 16 % 8, and the Philox counter is
// index / 128 * 16 + lane. So 16 neighbours run in the lanes of one vector register, and one Philox block
// of four words serves eight of them; any device computes the same number for the same element.
inline constexpr int kNoiseLanes = 16;
inline constexpr int kNoiseHalves = 8;
inline constexpr int kNoiseBlock = kNoiseHalves * kNoiseLanes;

// 16 random bits k give (k + 1/2) 2^-16 - 1/2: symmetric, never ±0.5, and exact in float32. A code is then rounded
// up with a probability that is right to 2^-17.
LOWTIDE_HOST_DEVICE inline float noise_value(std::uint32_t bits) {
  return static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-16f + (0x1p-17f - 0.5f);
}

// The counter with the step that lies in device memory, where one does.
LOWTIDE_HOST_DEVICE inline NoiseCounter counter_at(NoiseCounter counter, const std::int64_t* device_step) {
  if (device_step != nullptr) {
    const auto step = static_cast<std::uint64_t>(*device_step);
    counter.c1 = static_cast<std::uint32_t>(step);
    counter.c2 = static_cast<std::uint32_t>(step >> 32);
  }
  return counter;
}

LOWTIDE_HOST_DEVICE inline float noise_at(const NoiseCounter& counter, std::int64_t index) {
  const std::uint32_t lane = static_cast<std::uint32_t>(index % kNoiseLanes);
  const int half = static_cast<int>(index / kNoiseLanes % kNoiseHalves);
  const std::uint32_t position = static_cast<std::uint32_t>(index / kNoiseBlock) * kNoiseLanes + lane;
  const Philox::Block block =
      Philox::block(counter.key0, counter.key1, position, counter.c1, counter.c2, counter.c3);
  // Not by an index: a GPU would keep the words in memory for that.
  const std::uint32_t low = half < 2 ? block.word[0] : block.word[1],
                      high = half < 6 ? block.word[2] : block.word[3];
  return noise_value((half < 4 ? low : high) >> (half % 2 * 16) & 0xffffu);
}

}  // namespace lowtide
