#include <cuda_runtime.h>

#include <algorithm>

#include "lowtide/base/cuda_launch.h"
#include "lowtide/nn/dropout_kernels.h"
#include "lowtide/quant/noise_lanes.cuh"
#include "lowtide/quant/vector.cuh"

namespace lowtide {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 132 * 32;

// As encode() does with the range [0, scale] and one bit.
__global__ void __launch_bounds__(kThreads) dropout_kernel(DropoutArguments a) {
  const NoiseCounter counter = counter_at(a.counter, a.device_step);
  const Encoder encoder = Encoder::make(0.0f, a.scale, 1.0f);
  const std::int64_t blocks = (a.n + kNoiseBlock - 1) / kNoiseBlock;
  const int thread = static_cast<int>(threadIdx.x) % NoiseLanes::kThreads;
  constexpr int kBlocksAtOnce = kThreads / NoiseLanes::kThreads;
  std::int64_t block =
      static_cast<std::int64_t>(blockIdx.x) * kBlocksAtOnce + threadIdx.x / NoiseLanes::kThreads;
  for (; block < blocks; block += static_cast<std::int64_t>(gridDim.x) * kBlocksAtOnce) {
    const std::int64_t first = block * kNoiseBlock + thread * NoiseLanes::kFour;
    float4 x[kNoiseHalves];
#pragma unroll
    for (int half = 0; half < kNoiseHalves; ++half) x[half] = four_of(a.x, first + half * kNoiseLanes, a.n);
    const NoiseLanes noise = NoiseLanes::draw(counter, block, thread);
#pragma unroll
    for (int half = 0; half < kNoiseHalves; ++half) {
      unsigned code[NoiseLanes::kFour];
#pragma unroll
      for (int i = 0; i < NoiseLanes::kFour; ++i) code[i] = encoder.code(1.0f, noise.at(half, i));
      const std::int64_t at = first + half * kNoiseLanes;
      store_four_codes(code[0] | code[1] << 8 | code[2] << 16 | code[3] << 24, a.code, at, a.n);
      const float4 y = make_float4(x[half].x * (static_cast<float>(code[0]) * encoder.scale),
                                   x[half].y * (static_cast<float>(code[1]) * encoder.scale),
                                   x[half].z * (static_cast<float>(code[2]) * encoder.scale),
                                   x[half].w * (static_cast<float>(code[3]) * encoder.scale));
      store_four(y, a.y, at, a.n);
    }
  }
}

__global__ void __launch_bounds__(kThreads) mask_kernel(MaskArguments a) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads * 4;
#pragma unroll 2
  for (std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 4; at < a.n;
       at += stride) {
    const float4 x = four_of(a.x, at, a.n);
    const unsigned code = four_codes_of(a.code, at, a.n);
    const auto factor = [&](int i) { return static_cast<float>(code >> (8 * i) & 0xffu) * a.scale; };
    store_four(make_float4(x.x * factor(0), x.y * factor(1), x.z * factor(2), x.w * factor(3)), a.y, at, a.n);
  }
}

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>(std::min((threads + kThreads - 1) / kThreads, kMostBlocks));
}

}  // namespace

void dropout_on_gpu(const DropoutArguments& a, void* stream) {
  dropout_kernel<<<blocks_for((a.n + 31) / (NoiseLanes::kFour * kNoiseHalves)), kThreads, 0,
                   static_cast<cudaStream_t>(stream)>>>(a);
  check_launch("dropout");
}

void mask_on_gpu(const MaskArguments& a, void* stream) {
  mask_kernel<<<blocks_for((a.n + 3) / 4), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(a);
  check_launch("dropout's gradient");
}

}  // namespace lowtide
