#pragma once

#include "lowtide/base/cuda_launch.h"
#include "lowtide/base/random.h"  // LOWTIDE_HOST_DEVICE

// How the CUDA engine's kernels are cut: by shapes, not by what the GPU has. Whether images stay (resident.cuh) is the exception.

namespace lowtide::cuda {

// Columns that a block of a product computes at most, and to a multiple of which weights are packed.
LOWTIDE_HOST_DEVICE inline int forward_columns(int outputs) {
  return outputs <= 16 ? 16 : outputs <= 32 ? 32 : 64;
}

}  // namespace lowtide::cuda
