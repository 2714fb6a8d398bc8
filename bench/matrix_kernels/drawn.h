#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "bench/gpu_memory.h"

// Numbers drawn on the GPU.

namespace lowtide::cuda::bench {

inline cudaStream_t stream = nullptr;  // NOLINT: on which all is launched

inline unsigned blocks_of(std::size_t n) { return static_cast<unsigned>((n + 255) / 256); }

std::unique_ptr<Buffer<std::uint8_t>> codes(std::size_t n, int bits);
std::unique_ptr<Buffer<float>> floats(std::size_t n, float scale = 1, float shift = 0);

}  // namespace lowtide::cuda::bench
