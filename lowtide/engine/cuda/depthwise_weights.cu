// The weights of depthwise convolutions: ranges, codes and what sums over taps are made with, of all layers of a trunk in one launch.
#include <algorithm>

#include "lowtide/engine/cuda/depthwise.h"
#include "lowtide/engine/cuda/launch.h"
#include "lowtide/engine/cuda/statistics.cuh"

namespace lowtide::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLayersPerLaunch = 20;  // of 4 KiB of arguments

struct Layers {
  WeightLayer layer[kLayersPerLaunch];
};
static_assert(sizeof(Layers) <= 4096);

// A thread a channel, a row of blocks a layer.
__global__ void encode_depthwise_weights_kernel(const __grid_constant__ Layers layers) {
  const WeightLayer& w = layers.layer[blockIdx.y];
  const int channel = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (channel >= w.outputs) return;
  float weight[kDepthwiseTaps];
  Extent extent;
#pragma unroll
  for (int tap = 0; tap < kDepthwiseTaps; ++tap) {
    weight[tap] = w.weight[channel * kDepthwiseTaps + tap];
    extent.include(weight[tap]);
  }
  float min, range;
  store_range(extent.poisoned ? NAN : extent.low, extent.poisoned ? NAN : extent.high, &min, &range);
  const float top = w.bits.top(), scale = scale_of(range, top);
  const Affine of = Affine::of(scale, min, static_cast<int>(top));
  DepthwiseChannel result{{0, 0, 0}, of.zero, of.residual, scale, -kDepthwiseTaps * of.zero};
#pragma unroll
  for (int tap = 0; tap < kDepthwiseTaps; ++tap) {
    const float v = __fdiv_rn(__fsub_rn(weight[tap], min), scale);
    const int code = __float2int_rn(fminf(fmaxf(v, 0.0f), top));
    w.code[channel * kDepthwiseTaps + tap] = static_cast<std::uint8_t>(code);
    result.row[tap / kDepthwiseKernel] |= static_cast<unsigned>(code) << 8 * (tap % kDepthwiseKernel);
    result.sum += code;
  }
  w.scale[channel] = scale;
  w.offset[channel] = min;
  w.depthwise[channel] = result;
}

}  // namespace

void encode_depthwise_weights(const WeightLayer* layers, int count, void* stream) {
  for (int first = 0; first < count; first += kLayersPerLaunch) {
    Layers of{};
    const int together = std::min(count - first, kLayersPerLaunch);
    int channels = 0;
    for (int i = 0; i < together; ++i) {
      of.layer[i] = layers[first + i];
      channels = std::max(channels, of.layer[i].outputs);
    }
    const dim3 grid(static_cast<unsigned>((channels + kThreads - 1) / kThreads),
                    static_cast<unsigned>(together));
    encode_depthwise_weights_kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(of);
    check_launch("encode_depthwise_weights");
  }
}

}  // namespace lowtide::cuda
