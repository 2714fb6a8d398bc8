#include <cuda_runtime.h>

#include "lowtide/base/cuda_launch.h"
#include "lowtide/nn/pointwise_kernels.h"
#include "lowtide/quant/quantizer_kernels.h"
#include "lowtide/quant/range.cuh"
#include "lowtide/quant/vector.cuh"

namespace lowtide {
namespace {

__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f)); }

__global__ void __launch_bounds__(kRangeThreads) gelu_kernel(GeluArguments a) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kRangeThreads * 4;
  Extremes extremes = Extremes::of_none();
#pragma unroll 2
  for (std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kRangeThreads + threadIdx.x) * 4; at < a.n;
       at += stride) {
    const float4 x = four_of(a.x, at, a.n);
    const float4 y = make_float4(gelu(x.x), gelu(x.y), gelu(x.z), gelu(x.w));
    store_four(y, a.y, at, a.n);
    extremes.include(y.x);
    if (at + 1 < a.n) extremes.include(y.y);
    if (at + 2 < a.n) extremes.include(y.z);
    if (at + 3 < a.n) extremes.include(y.w);
  }
  extremes = join_block(extremes);
  if (threadIdx.x == 0) static_cast<Extremes*>(a.scratch)[blockIdx.x] = extremes;
}

}  // namespace

void gelu_on_gpu(const GeluArguments& a, void* opaque_stream) {
  const auto needed = static_cast<int>((a.n + kRangeThreads * 4 - 1) / (kRangeThreads * 4));
  const int blocks = needed < kRangeBlocks ? needed : kRangeBlocks;
  gelu_kernel<<<static_cast<unsigned>(blocks), kRangeThreads, 0, static_cast<cudaStream_t>(opaque_stream)>>>(
      a);
  check_launch("GELU");
  join_extremes_on_gpu(a.scratch, blocks, a.min, a.range, opaque_stream);
}

}  // namespace lowtide
