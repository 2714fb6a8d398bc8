#pragma once

#include "lowtide/engine/cuda/matrix.h"

// What kernels of products share.

namespace lowtide::cuda {

// The middle code: half of 2^bits.
__device__ inline int centre_of(const DeviceBits& bits) { return static_cast<int>(bits.top() + 1) / 2; }

// What the middle code stands for.
__device__ inline float middle_value(float scale, float offset, int centre) {
  return __fmaf_rn(scale, static_cast<float>(centre), offset);
}

}  // namespace lowtide::cuda
