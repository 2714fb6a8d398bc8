#pragma once

#include <cuda_runtime.h>

#include "lowtide/quant/extremes.h"

// Ranges in two steps, for CUDA kernels: what the blocks of a kernel found, which another joins.

namespace lowtide {

inline constexpr int kRangeThreads = 256, kRangeWarp = 32;
// 132 multiprocessors of an H200 hold 8 blocks of 256 threads.
inline constexpr int kRangeBlocks = 1024;

__device__ inline Extremes join_warp(Extremes mine) {
  for (int apart = kRangeWarp / 2; apart > 0; apart /= 2)
    mine.join({__shfl_xor_sync(0xffffffffu, mine.min, apart), __shfl_xor_sync(0xffffffffu, mine.max, apart),
               __shfl_xor_sync(0xffffffffu, mine.poison, apart)});
  return mine;
}

// Joins what the threads of a block hold; valid in its first warp.
__device__ inline Extremes join_block(const Extremes& mine) {
  __shared__ Extremes shared[kRangeWarp];
  const auto warp = threadIdx.x / kRangeWarp, lane = threadIdx.x % kRangeWarp;
  const Extremes of_warp = join_warp(mine);
  if (lane == 0) shared[warp] = of_warp;
  __syncthreads();
  return join_warp(lane < blockDim.x / kRangeWarp ? shared[lane] : Extremes::of_none());
}

}  // namespace lowtide
