// The gradient at the weight of a 3 × 3 convolution of small images: whole images lie in shared memory, and a warp multiplies
// sixteen channels of the error by sixteen of the input at three taps. Both operands have the pixels along the sum, which
// tensor cores want to lie together: matrices are transposed as pairs of bytes when they are loaded, and pairs sorted into
// channels. Sums are integers, which blocks add up in memory. One layer would not fill a GPU, so many are computed at once.
#include <algorithm>

#include "lowtide/engine/cuda/divisor.cuh"
#include "lowtide/engine/cuda/launch.h"
#include "lowtide/engine/cuda/layers.cuh"
#include "lowtide/engine/cuda/weight_gradient.cuh"

namespace lowtide::cuda {
namespace {

constexpr int kTaps = 9, kTapRows = 3, kRowTaps = 3;
constexpr int kStepPixels = 32;  // along the sum
constexpr int kStages = 2;
constexpr int kOutputs = 16;  // of a block

template <int kChannels>
struct Tile {
  static constexpr int kInputs = kChannels < 32 ? kChannels : 32;
  static constexpr int kChannelBlocks = kInputs / 16;  // of sixteen inputs
  static constexpr int kThreads = kChannelBlocks * kTapRows * kWarp;
  static constexpr int kProducts = kOutputs * kTaps * kInputs;
};

// Sums in memory: by output, tap and input; of the input by tap and input; of the error by tap and output.
__host__ __device__ TileCounts words_of(int channels) {
  return {channels * kTaps * channels, kTaps * channels, kTaps * channels};
}

// Images of a stage, and stages of a block.
struct ImageCut {
  int stage_images = 1, block_stages = 1, splits = 1;
  int stage_pixels = 0;                             // of the error
  int pitch = 0, image_units = 0, input_units = 0;  // of 16 channels: of an image with its border, of a stage
  Divisor by_image, by_width;

  ImageCut() = default;
  explicit ImageCut(const ConvGeometry& g) {
    // Enough along the sum that what a block adds to memory in the end is not most of its work.
    constexpr int kStagePixels = 256, kBlockPixels = 1024;
    const int pixels = g.height * g.width;
    stage_images = pixels < kStagePixels ? kStagePixels / pixels : 1;
    block_stages = stage_images * pixels < kBlockPixels ? kBlockPixels / (stage_images * pixels) : 1;
    splits = divide_up(g.images, stage_images * block_stages);
    stage_pixels = stage_images * pixels;
    pitch = g.width + 2;
    image_units = (g.height + 2) * pitch;
    input_units = stage_images * image_units;
    by_image = Divisor(pixels);
    by_width = Divisor(g.width);
  }
  // Of so many channel blocks of the input and one of the error.
  __host__ __device__ int stage_bytes(int channel_blocks) const {
    return (channel_blocks * input_units + stage_pixels) * 16;
  }
};

// Where a pixel of a stage lies among the input's, in units, from its first tap on.
__device__ int input_place(const ConvGeometry& g, const ImageCut& cut, int pixel) {
  const int image = cut.by_image.of(pixel), at = pixel - image * g.height * g.width,
            row = cut.by_width.of(at);
  return image * cut.image_units + row * cut.pitch + at - row * g.width;
}

// A stage: the input's channel blocks, then the error's.
template <int kChannels>
struct Stage {
  using Of = Tile<kChannels>;
  std::uint8_t *input, *error;

  __device__ Stage(const ImageCut& cut, std::uint8_t* memory)
      : input(memory), error(memory + Of::kChannelBlocks * cut.input_units * 16) {}

  // Every border is written once.
  __device__ void clear(const ImageCut& cut) const {
    auto* all = reinterpret_cast<uint4*>(input);
    for (int i = static_cast<int>(threadIdx.x); i < cut.stage_bytes(Of::kChannelBlocks) / 16;
         i += Of::kThreads)
      all[i] = make_uint4(0, 0, 0, 0);
  }
  // Images that are not there are zeros.
  __device__ void load(const WeightGradientArguments& a, const ImageCut& cut, int first_image,
                       int first_output, int first_input) const {
    const int pixels = a.g.height * a.g.width;
    const int there = min(cut.stage_images, a.g.images - first_image) * pixels;
    const long long first = static_cast<long long>(first_image) * pixels * kChannels;
    const auto put = [&](std::uint8_t* to, const std::uint8_t* from, bool is_there) {
      if (is_there) {
        copy_async<16>(to, from);
      } else {
        *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
      }
    };
    for (int i = static_cast<int>(threadIdx.x); i < cut.stage_pixels * Of::kChannelBlocks;
         i += Of::kThreads) {
      const int pixel = i / Of::kChannelBlocks, channel_block = i % Of::kChannelBlocks;
      put(input + (channel_block * cut.input_units + input_place(a.g, cut, pixel) + cut.pitch + 1) * 16,
          a.x.code + first + pixel * kChannels + first_input + channel_block * 16, pixel < there);
    }
    for (int pixel = static_cast<int>(threadIdx.x); pixel < cut.stage_pixels; pixel += Of::kThreads)
      put(error + pixel * 16, a.dy.code + first + pixel * kChannels + first_output, pixel < there);
  }
};

// Σ of the error over the pixels that a tap leads from, by tap and output.
template <int kChannels>
__device__ void add_error_sums(const ConvGeometry& g, const ImageCut& cut, const Stage<kChannels>& stage,
                               int* sums) {
  for (int i = static_cast<int>(threadIdx.x); i < kTaps * kOutputs; i += Tile<kChannels>::kThreads) {
    const int tap = i / kOutputs, channel = i % kOutputs, down = tap / 3 - 1, right = tap % 3 - 1;
    int sum = 0;
    for (int pixel = 0; pixel < cut.stage_pixels; ++pixel) {
      const int at = pixel - cut.by_image.of(pixel) * g.height * g.width, row = cut.by_width.of(at),
                col = at - row * g.width;
      const bool inside = static_cast<unsigned>(row + down) < static_cast<unsigned>(g.height) &&
                          static_cast<unsigned>(col + right) < static_cast<unsigned>(g.width);
      if (inside) sum += stage.error[pixel * 16 + channel];
    }
    sums[i] += sum;
  }
}

constexpr int kSummedLayers = layers_per_launch(sizeof(WeightGradientArguments) + sizeof(ImageCut));

struct SummedLayers : LayerBlocks<kSummedLayers> {
  WeightGradientArguments layer[kSummedLayers];
  ImageCut cut[kSummedLayers];
};
static_assert(sizeof(SummedLayers) <= kArgumentBytes);

template <int kChannels>
__global__ void __launch_bounds__(Tile<kChannels>::kThreads)
    sum_weight_gradients_kernel(const __grid_constant__ SummedLayers layers) {
  using Of = Tile<kChannels>;
  const int layer = layers.layer_of_block(), block = layers.block_of_layer(layer);
  const WeightGradientArguments& a = layers.layer[layer];
  const ImageCut& cut = layers.cut[layer];
  constexpr int kTiles = kChannels / kOutputs * (kChannels / Of::kInputs);
  const int tile = block % kTiles, split = block / kTiles;
  extern __shared__ __align__(16) std::uint8_t memory[];
  __shared__ int error_sums[kTaps * kOutputs];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const int tap_row = thread / kWarp % kTapRows, channel_block = thread / kWarp / kTapRows;
  const int first_output = tile / (kChannels / Of::kInputs) * kOutputs,
            first_input = tile % (kChannels / Of::kInputs) * Of::kInputs;
  const bool takes_errors = first_input == 0 && GradientValues(a).needs_errors();

  const auto stage_at = [&](int i) {
    return Stage<kChannels>(cut, memory + i % kStages * cut.stage_bytes(Of::kChannelBlocks));
  };
  const int first_image = split * cut.stage_images * cut.block_stages;
  const int block_stages = min(cut.block_stages, divide_up(a.g.images - first_image, cut.stage_images));
  for (int i = thread; i < kTaps * kOutputs; i += Of::kThreads) error_sums[i] = 0;
  for (int i = 0; i < kStages && i < block_stages; ++i) stage_at(i).clear(cut);
  __syncthreads();
  const auto load = [&](int i) {
    if (i < block_stages)
      stage_at(i).load(a, cut, first_image + i * cut.stage_images, first_output, first_input);
    commit_copies();
  };
  load(0);

  int product[kRowTaps][2][4]{};
  unsigned input_sum[kRowTaps][2]{};
  for (int i = 0; i < block_stages; ++i) {
    load(i + 1);
    wait_for_copies<1>();
    __syncthreads();
    const Stage<kChannels> stage = stage_at(i);
    const std::uint8_t* input = stage.input + (channel_block * cut.input_units + tap_row * cut.pitch) * 16;
#pragma unroll 2
    for (int pixel = lane; pixel < cut.stage_pixels; pixel += kStepPixels) {
      const Transposed e(stage.error + pixel * 16);
      const unsigned rows[4] = {e.even[0], e.odd[0], e.even[1], e.odd[1]};
      const std::uint8_t* first_tap = input + input_place(a.g, cut, pixel) * 16;
#pragma unroll
      for (int tap = 0; tap < kRowTaps; ++tap) {
        const Transposed x(first_tap + tap * 16);
        multiply_bytes(product[tap][0], rows, x.even[0], x.even[1]);
        multiply_bytes(product[tap][1], rows, x.odd[0], x.odd[1]);
        input_sum[tap][0] = x.sum_of(x.even, input_sum[tap][0]);
        input_sum[tap][1] = x.sum_of(x.odd, input_sum[tap][1]);
      }
    }
    if (takes_errors) add_error_sums(a.g, cut, stage, error_sums);
    __syncthreads();  // the stage was read
  }
  wait_for_copies<0>();

  // A lane has outputs 2 · (lane / 4) and the next, inputs 4 · (lane % 4) and the next three. Through shared memory, so that
  // neighbours add to neighbouring words.
  int* sums = reinterpret_cast<int*>(memory);
  const int group = lane / 4, in_group = lane % 4;
  const TileWords words(a.work, 0, words_of(kChannels));
#pragma unroll
  for (int i = 0; i < kRowTaps; ++i) {
    const int tap = tap_row * kRowTaps + i;
#pragma unroll
    for (int k = 0; k < 2; ++k)
      *reinterpret_cast<int4*>(sums + ((2 * group + k) * kTaps + tap) * Of::kInputs + channel_block * 16 +
                               4 * in_group) = make_int4(product[i][0][2 * k], product[i][1][2 * k],
                                                         product[i][0][2 * k + 1], product[i][1][2 * k + 1]);
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {  // lanes of a group have other pixels of the same channel
      int sum = static_cast<int>(input_sum[i][odd]);
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (in_group == 0 && first_output == 0)
        add_word(words.inputs + tap * kChannels + first_input + channel_block * 16 + 2 * group + odd, sum);
    }
  }
  __syncthreads();
  for (int i = thread; i < Of::kProducts; i += Of::kThreads) {
    const int input = i % Of::kInputs, row = i / Of::kInputs;  // by output and tap
    add_word(words.products + (first_output * kTaps + row) * kChannels + first_input + input, sums[i]);
  }
  if (!takes_errors) return;
  for (int i = thread; i < kTaps * kOutputs; i += Of::kThreads)
    add_word(words.errors + i / kOutputs * kChannels + first_output + i % kOutputs, error_sums[i]);
}

constexpr std::size_t kMostSumBytes = 64 * 1024;  // so that three blocks fit onto a multiprocessor

// Shared memory of a block: its stages, and in the end its sums in their place.
template <int kChannels>
std::size_t sum_bytes(const ImageCut& cut) {
  using Of = Tile<kChannels>;
  const int stages = cut.block_stages > 1 ? kStages : 1;
  return std::max(sizeof(int) * Of::kProducts,
                  static_cast<std::size_t>(stages * cut.stage_bytes(Of::kChannelBlocks)));
}
std::size_t sum_bytes(const ConvGeometry& g) {
  const ImageCut cut(g);
  return g.inputs == 16 ? sum_bytes<16>(cut) : g.inputs == 32 ? sum_bytes<32>(cut) : sum_bytes<64>(cut);
}

// Those of `count` layers that have so many channels.
template <int kChannels>
void launch_sums(const WeightGradientArguments* layers, int count, cudaStream_t stream) {
  using Of = Tile<kChannels>;
  SummedLayers of;
  std::size_t bytes = 0;
  const auto launch = [&] {
    if (of.count == 0) return;
    cudaFuncSetAttribute(sum_weight_gradients_kernel<kChannels>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(bytes));
    sum_weight_gradients_kernel<kChannels><<<of.blocks(), Of::kThreads, bytes, stream>>>(of);
    check_launch("sum_weight_gradients");
    of.count = 0;
  };
  for (int i = 0; i < count; ++i) {
    if (layers[i].g.inputs != kChannels) continue;
    const ImageCut cut(layers[i].g);
    bytes = std::max(bytes, sum_bytes<kChannels>(cut));
    of.layer[of.count] = layers[i];
    of.cut[of.count] = cut;
    of.add(kChannels / kOutputs * (kChannels / Of::kInputs) * cut.splits);
    if (of.is_full()) launch();
  }
  launch();
}

// ---- Values of all layers ------------------------------------------------------------------------------------------

constexpr int kFinishThreads = 256;

constexpr int kFinishedLayers = layers_per_launch(sizeof(WeightGradientArguments));

struct FinishedLayers : LayerBlocks<kFinishedLayers> {
  WeightGradientArguments layer[kFinishedLayers];
};
static_assert(sizeof(FinishedLayers) <= kArgumentBytes);

__global__ void finish_weight_gradients_kernel(const __grid_constant__ FinishedLayers layers) {
  const int at = layers.layer_of_block();
  const WeightGradientArguments& a = layers.layer[at];
  const int channels = a.g.inputs;
  const int i = layers.block_of_layer(at) * kFinishThreads + static_cast<int>(threadIdx.x);
  if (i >= channels * kTaps * channels) return;
  const TileWords words(a.work, 0, words_of(channels));
  const int input = i % channels, tap = i / channels % kTaps, output = i / channels / kTaps;
  a.dw[i] =
      GradientValues(a).value(pixels_of_tap(a.g, tap), words.products[i],
                              words.inputs[tap * channels + input], words.errors[tap * channels + output]);
}

}  // namespace

bool has_image_weight_gradient(const ConvGeometry& g) {
  const int pixels = g.height * g.width;
  return image_weight_gradient_work_bytes(g) > 0 && g.stride_rows == 1 && g.stride_cols == 1 &&
         g.pad_rows == 1 && g.pad_cols == 1 && pixels % kStepPixels == 0 && sum_bytes(g) <= kMostSumBytes;
}

std::size_t image_weight_gradient_work_bytes(const ConvGeometry& g) {
  if (g.depthwise || !may_stay(g.outputs, g.kernel_rows, g.kernel_cols, g.inputs)) return 0;
  return sizeof(long long) * static_cast<std::size_t>(words_of(g.inputs).all());
}

void image_weight_gradients(const WeightGradientArguments* layers, int count, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  launch_sums<16>(layers, count, stream);
  launch_sums<32>(layers, count, stream);
  launch_sums<64>(layers, count, stream);
  FinishedLayers of;
  for (int i = 0; i < count; ++i) {
    of.layer[of.count] = layers[i];
    const int weights = layers[i].g.inputs * kTaps * layers[i].g.outputs;
    of.add(divide_up(weights, kFinishThreads));
    if (!of.is_full() && i + 1 < count) continue;
    finish_weight_gradients_kernel<<<of.blocks(), kFinishThreads, 0, stream>>>(of);
    check_launch("finish_weight_gradients");
    of.count = 0;
  }
}

}  // namespace lowtide::cuda
