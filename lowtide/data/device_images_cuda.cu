// Gather, padded crop, flip and normalisation in one pass over the batch, with the Augmenter's roundings: the batch is
// the CPU's to the bit.
#include <cuda_runtime.h>

#include <algorithm>

#include "lowtide/base/cuda_launch.h"
#include "lowtide/data/device_images_kernels.h"

namespace lowtide {
namespace {

constexpr int kThreads = 256;

// The output's element (y, x, channel) of one item.
template <int kChannels>
__device__ float element(const GatherArguments& a, const CropItem& item, int y, int x, int channel,
                         float scale, float shift) {
  const int row = y + item.top;
  const int column = (item.flip ? a.out_width - 1 - x : x) + item.left;
  // A row of nothing but border is the shift itself. Beside the image it is 0 · scale + shift, as on the CPU: the two
  // differ in the sign of a zero.
  const bool covered = row >= 0 && row < a.height && item.left < a.width && item.left + a.out_width > 0;
  if (!covered) return shift;
  std::uint8_t value = 0;
  if (column >= 0 && column < a.width) {
    const std::int64_t pixel = (static_cast<std::int64_t>(item.index) * a.height + row) * a.width + column;
    value = a.pixels[pixel * kChannels + channel];
  }
  // Explicit roundings: a fused multiply-add would give other numbers than the CPU.
  return __fadd_rn(__fmul_rn(static_cast<float>(value), scale), shift);
}

// Blocks (item, part of its elements): neighbouring threads write neighbours, and read them.
template <int kChannels>
__global__ void gather_kernel(GatherArguments a) {
  const CropItem item = a.items[blockIdx.x];
  const int elements = a.out_height * a.out_width * kChannels;
  float* out = a.images + static_cast<std::int64_t>(blockIdx.x) * elements;
  const int stride = static_cast<int>(gridDim.y) * kThreads;
  for (int i = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x); i < elements;
       i += stride) {
    const int pixel = i / kChannels;
    const int channel = i % kChannels;
    const int y = pixel / a.out_width;
    const float scale = channel == 0 ? a.scale[0] : channel == 1 ? a.scale[1] : a.scale[2];
    const float shift = channel == 0 ? a.shift[0] : channel == 1 ? a.shift[1] : a.shift[2];
    out[i] = element<kChannels>(a, item, y, pixel - y * a.out_width, channel, scale, shift);
  }
  if (blockIdx.y == 0 && threadIdx.x == 0) a.labels[blockIdx.x] = item.label;
}

}  // namespace

void gather_images(const GatherArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  const int elements = a.out_height * a.out_width * a.channels;
  // Larger images go round: 64 blocks for each of a batch's items are more than a GPU holds at a time.
  const dim3 blocks(static_cast<unsigned>(a.count),
                    static_cast<unsigned>(std::min((elements + kThreads - 1) / kThreads, 64)));
  if (a.channels == 3) {
    gather_kernel<3><<<blocks, kThreads, 0, stream>>>(a);
  } else {
    gather_kernel<1><<<blocks, kThreads, 0, stream>>>(a);
  }
  check_launch("a batch of images");
}

}  // namespace lowtide
