#include <cuda_runtime.h>

#include <algorithm>

#include "lowtide/nn/dropout_kernels.h"
#include "lowtide/quant/noise.h"
#include "lowtide/quant/vector.cuh"

namespace lowtide {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 132 * 32;

// As encode() does with the range [0, scale] and one bit; a thread has the eight numbers whose noise is drawn at once.
__global__ void __launch_bounds__(kThreads) dropout_kernel(DropoutArguments a) {
  const NoiseCounter counter = counter_at(a.counter, a.device_step);
  const Encoder encoder = Encoder::make(0.0f, a.scale, 1.0f);
  const std::int64_t blocks = (a.n + kNoiseBlock - 1) / kNoiseBlock;
  const auto lane = threadIdx.x % kNoiseLanes;
  constexpr int kBlocksAtOnce = kThreads / kNoiseLanes;
  std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kBlocksAtOnce + threadIdx.x / kNoiseLanes;
  for (; block < blocks; block += static_cast<std::int64_t>(gridDim.x) * kBlocksAtOnce) {
    const Philox::Block words =
        Philox::block(counter.key0, counter.key1, static_cast<std::uint32_t>(block) * kNoiseLanes + lane,
                      counter.c1, counter.c2, counter.c3);
#pragma unroll
    for (int half = 0; half < kNoiseHalves; ++half) {
      const std::int64_t i = block * kNoiseBlock + half * kNoiseLanes + lane;
      if (i >= a.n) break;
      const unsigned code =
          encoder.code(1.0f, noise_value(words.word[half / 2] >> (half % 2 * 16) & 0xffffu));
      a.code[i] = static_cast<std::uint8_t>(code);
      a.y[i] = a.x[i] * (static_cast<float>(code) * encoder.scale);
    }
  }
}

__global__ void __launch_bounds__(kThreads) mask_kernel(MaskArguments a) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < a.n; i += stride)
    a.y[i] = a.x[i] * (static_cast<float>(a.code[i]) * a.scale);
}

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>(std::min((threads + kThreads - 1) / kThreads, kMostBlocks));
}

}  // namespace

void dropout_on_gpu(const DropoutArguments& a, void* stream) {
  dropout_kernel<<<blocks_for((a.n + kNoiseHalves - 1) / kNoiseHalves), kThreads, 0,
                   static_cast<cudaStream_t>(stream)>>>(a);
}

void mask_on_gpu(const MaskArguments& a, void* stream) {
  mask_kernel<<<blocks_for(a.n), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(a);
}

}  // namespace lowtide
