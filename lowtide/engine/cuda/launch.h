#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "lowtide/base/cuda_launch.h"
#include "lowtide/base/random.h"  // LOWTIDE_HOST_DEVICE

// How the CUDA engine's kernels are cut: by shapes, not by what the GPU has. Exceptions: what its shared memory has no
// room for, and whether images stay (resident.cuh).

namespace lowtide::cuda {

// Columns that a block of a product computes at most, and to a multiple of which weights are packed.
LOWTIDE_HOST_DEVICE inline int forward_columns(int outputs) {
  return outputs <= 16 ? 16 : outputs <= 32 ? 32 : 64;
}

// With as much shared memory as is asked for, up to most_shared_bytes().
template <auto kKernel, typename... Arguments>
void launch_kernel(const char* name, dim3 grid, int threads, std::size_t shared_bytes, cudaStream_t stream,
                   const Arguments&... arguments) {
  constexpr std::size_t kWithoutAsking = 32 * 1024;  // 48 KiB, less what kernels declare themselves
  if (shared_bytes > kWithoutAsking)
    cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
  kKernel<<<grid, static_cast<unsigned>(threads), shared_bytes, stream>>>(arguments...);
  check_launch(name);
}

}  // namespace lowtide::cuda
