#pragma once

#include <cuda_runtime.h>

#include "lowtide/quant/noise.h"

// Noise for four neighbouring numbers at a time, for CUDA kernels.

namespace lowtide {

// What a thread draws of a block of 128 numbers: four lanes, in each of its halves. Four threads have a block, so that
// neighbouring ones have neighbouring fours, and nothing is drawn twice.
class NoiseLanes {
 public:
  static constexpr int kFour = 4, kThreads = kNoiseLanes / kFour;  // of a block

  __device__ static NoiseLanes draw(const NoiseCounter& counter, std::int64_t block, int thread) {
    NoiseLanes lanes;
    const std::uint32_t first =
        static_cast<std::uint32_t>(block) * kNoiseLanes + static_cast<std::uint32_t>(thread * kFour);
#pragma unroll
    for (std::uint32_t i = 0; i < kFour; ++i)
      lanes.words_[i] =
          Philox::block(counter.key0, counter.key1, first + i, counter.c1, counter.c2, counter.c3);
    return lanes;
  }

  // Of number half · 16 + thread · 4 + i of the block.
  __device__ float at(int half, int i) const {
    return noise_value(words_[i].word[half / 2] >> (half % 2 * 16) & 0xffffu);
  }

 private:
  Philox::Block words_[kFour];
};

}  // namespace lowtide
