// The gradients at weights of many channels. Bytes are multiplied as bytes: pixels of a channel, which tensor cores want to lie
// together, are brought there by transposed loads (weight_gradient.cuh). A block goes through tiles of pixels of one split; what it
// sums stays in registers until the end and is written once. A second kernel adds the splits and makes values of them.
#include <algorithm>

#include "lowtide/engine/cuda/tiles.cuh"
#include "lowtide/engine/cuda/weight_gradient.cuh"

namespace lowtide::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kStages = 2;
constexpr int kStepPixels = 32;
constexpr int kBlocks = 264;  // that share the work at most: two for a multiprocessor of an H200

// A warp has kOutputTiles times 16 outputs, and kChannelBlocks times 16 inputs of each tap.
template <int kOfOutputTiles, int kOfChannelBlocks, int kOfTaps, int kOfOutputWarps>
struct WideTile {
  static constexpr int kOutputTiles = kOfOutputTiles, kChannelBlocks = kOfChannelBlocks, kTaps = kOfTaps;
  static constexpr int kOutputWarps = kOfOutputWarps, kInputWarps = kWarps / kOutputWarps;
  static constexpr int kErrorChannelBlocks = kOutputTiles * kOutputWarps,
                       kInputChannelBlocks = kChannelBlocks * kInputWarps;
  static constexpr int kOutputs = 16 * kErrorChannelBlocks, kInputs = 16 * kInputChannelBlocks;
  static constexpr int kKernelCols = kTaps == 9 ? 3 : 1;
  using Rows = TileRows<kThreads, 1, 16, false>;
};
using NineTaps = WideTile<2, 1, 9, 2>;
template <int kOutputWarps>
using OneTap = WideTile<4, 4, 1, kOutputWarps>;

// How the pixels are shared out.
struct WideCut {
  PixelTiles tiles;
  int split_tiles = 0, splits = 0;

  template <typename Tile>
  static WideCut of(const WeightGradientArguments& a) {
    WideCut cut;
    cut.tiles = weight_gradient_tiles(a.g, a.x.code, Tile::kInputChannelBlocks);
    if (cut.tiles.tiles == 0) return cut;
    cut.tiles.set_threads(kThreads);
    const int blocks = divide_up(a.g.outputs, Tile::kOutputs) * divide_up(a.g.inputs, Tile::kInputs);
    const int wanted = std::clamp(kBlocks / blocks, 1, cut.tiles.tiles);
    cut.split_tiles =
        std::min(divide_up(cut.tiles.tiles, wanted), kMostPixelsPerBlock / cut.tiles.positions());
    cut.splits = divide_up(cut.tiles.tiles, cut.split_tiles);
    return cut;
  }
  __host__ __device__ int padded_positions() const { return round_up(tiles.positions(), kStepPixels); }
};

// Sums that blocks add to, in zeroed memory: those of the input and of the error.
__host__ __device__ TileCounts sums_of(const ConvGeometry& g) {
  return {0, g.taps() * g.inputs, g.taps() * g.outputs};
}

// A stage: the input's channel blocks, then the error's.
template <typename Tile>
struct WideStage {
  static std::size_t bytes(const WideCut& cut) {
    return static_cast<std::size_t>(Tile::Rows::stage_bytes(cut.tiles)) +
           static_cast<std::size_t>(Tile::kErrorChannelBlocks * cut.padded_positions() * kUnitBytes);
  }
  std::uint8_t *input, *error;

  __device__ WideStage(const WideCut& cut, std::uint8_t* memory, int number)
      : input(memory + number * (Tile::Rows::stage_bytes(cut.tiles) +
                                 Tile::kErrorChannelBlocks * cut.padded_positions() * kUnitBytes)),
        error(input + Tile::Rows::stage_bytes(cut.tiles)) {}

  __device__ std::uint8_t* error_unit(const WideCut& cut, int channel_block, int position) const {
    return error + (channel_block * cut.padded_positions() + position) * kUnitBytes;
  }
  // What lies beyond a tile's positions is never copied.
  __device__ void clear_padding(const WideCut& cut) const {
    const int positions = cut.tiles.positions(), padding = cut.padded_positions() - positions;
    for (int i = static_cast<int>(threadIdx.x); i < padding * Tile::kErrorChannelBlocks; i += kThreads)
      *reinterpret_cast<uint4*>(error_unit(cut, i / padding, positions + i % padding)) =
          make_uint4(0, 0, 0, 0);
  }
  // Results that are not there are zeros.
  __device__ void load_error(const WeightGradientArguments& a, const WideCut& cut, int tile,
                             int first_output) const {
    const int positions = cut.tiles.positions(), first = tile * positions;
    const int there = min(positions, a.g.output_pixels() - first);
    for (int i = static_cast<int>(threadIdx.x); i < positions * Tile::kErrorChannelBlocks; i += kThreads) {
      const int position = i / Tile::kErrorChannelBlocks, channel_block = i % Tile::kErrorChannelBlocks,
                output = first_output + channel_block * kUnitBytes;
      std::uint8_t* to = error_unit(cut, channel_block, position);
      if (position < there && output < a.g.outputs) {
        copy_async<16>(to, a.dy.code + static_cast<long long>(first + position) * a.g.outputs + output);
      } else {
        *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
      }
    }
  }
};

// Σ of the error over the pixels of a tile that a tap leads from, four outputs at a time, in pairs of 16 bits: a tile has at most
// 256 positions, and 256 · 255 < 2^16.
template <typename Tile>
__device__ void add_error_sums(const WeightGradientArguments& a, const WideCut& cut,
                               const WideStage<Tile>& stage, int tile, int* sums) {
  constexpr int kWords = Tile::kOutputs / 4;
  const PixelTiles& t = cut.tiles;
  const TileAt at(t, tile);
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kTaps * kWords; i += kThreads) {
    const int tap = i / kWords, word = i % kWords;
    const int down = tap / Tile::kKernelCols, right = tap % Tile::kKernelCols;
    unsigned even = 0, odd = 0;
    for (int position = 0; position < t.positions(); ++position) {
      const TilePosition of(t, position);
      const int row = (at.row + of.row) * t.source_step + t.first_row + down,
                col = (at.col + of.col) * t.source_step + t.first_col + right;
      if (static_cast<unsigned>(row) >= static_cast<unsigned>(t.height) ||
          static_cast<unsigned>(col) >= static_cast<unsigned>(t.width))
        continue;
      const unsigned bytes =
          *reinterpret_cast<const unsigned*>(stage.error_unit(cut, word / 4, position) + word % 4 * 4);
      even += bytes & 0x00ff00ffu;
      odd += bytes >> 8 & 0x00ff00ffu;
    }
    int* to = sums + tap * Tile::kOutputs + 4 * word;
    to[0] += static_cast<int>(even & 0xffffu);
    to[1] += static_cast<int>(odd & 0xffffu);
    to[2] += static_cast<int>(even >> 16);
    to[3] += static_cast<int>(odd >> 16);
  }
}

// Ones for the positions that a lane holds of sixteen (Transposed), from `first` on.
__device__ unsigned ones_below(int first, int positions) {
  const int pixel = first + static_cast<int>(threadIdx.x) % 4 * 2;
  return (pixel < positions ? 0x1u : 0u) | (pixel + 1 < positions ? 0x100u : 0u) |
         (pixel + 8 < positions ? 0x10000u : 0u) | (pixel + 9 < positions ? 0x1000000u : 0u);
}

// A warp's sums, in registers.
template <typename Tile>
struct WarpSums {
  static constexpr int kColumns = Tile::kTaps * Tile::kChannelBlocks;  // of 16 inputs
  int product[Tile::kOutputTiles][kColumns][2][4]{};
  unsigned input[kColumns][2]{};

  // 32 pixels of a tile.
  __device__ __forceinline__ void add_step(const WideCut& cut, const WideStage<Tile>& stage, int step,
                                           const int* places, int output_warp, int input_warp,
                                           bool takes_inputs) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, position = step * kStepPixels + lane;
    const PixelTiles& t = cut.tiles;
    const int channel_block_bytes = t.tile_images * t.halo() * kUnitBytes, row_bytes = t.pitch * kUnitBytes;
    const std::uint8_t* x =
        stage.input + places[position] + input_warp * Tile::kChannelBlocks * channel_block_bytes;
    unsigned rows[Tile::kOutputTiles][4];
#pragma unroll
    for (int m = 0; m < Tile::kOutputTiles; ++m) {
      const Transposed e(stage.error_unit(cut, output_warp * Tile::kOutputTiles + m, position));
      rows[m][0] = e.even[0];
      rows[m][1] = e.odd[0];
      rows[m][2] = e.even[1];
      rows[m][3] = e.odd[1];
    }
    const unsigned ones[2] = {ones_below(step * kStepPixels, t.positions()),
                              ones_below(step * kStepPixels + 16, t.positions())};
    const auto column = [&](int i) {
      const int tap = i / Tile::kChannelBlocks, channel_block = i % Tile::kChannelBlocks;
      return Transposed(x + channel_block * channel_block_bytes + tap / Tile::kKernelCols * row_bytes +
                        tap % Tile::kKernelCols * kUnitBytes);
    };
    Transposed next = column(0);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const Transposed of = next;
      if (i + 1 < kColumns) next = column(i + 1);  // on its way while this one is multiplied
#pragma unroll
      for (int m = 0; m < Tile::kOutputTiles; ++m) {
        multiply_bytes(product[m][i][0], rows[m], of.even[0], of.even[1]);
        multiply_bytes(product[m][i][1], rows[m], of.odd[0], of.odd[1]);
      }
      if (!takes_inputs) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        input[i][0] = __dp4a(of.even[half], ones[half], input[i][0]);
        input[i][1] = __dp4a(of.odd[half], ones[half], input[i][1]);
      }
    }
  }

  // A lane has outputs 2 · (lane / 4) and the next of each 16, inputs 4 · (lane % 4) and the next three.
  __device__ void store_products(const ConvGeometry& g, int first_output, int first_input,
                                 int* products) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, group = lane / 4, in_group = lane % 4;
#pragma unroll
    for (int m = 0; m < Tile::kOutputTiles; ++m) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int input_at = first_input + i % Tile::kChannelBlocks * 16, output_at = first_output + m * 16;
        if (input_at >= g.inputs || output_at >= g.outputs) continue;
        const auto& of = product[m][i];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int row = (output_at + 2 * group + k) * Tile::kTaps + i / Tile::kChannelBlocks;
          *reinterpret_cast<int4*>(products + static_cast<long long>(row) * g.inputs + input_at +
                                   4 * in_group) =
              make_int4(of[0][2 * k], of[1][2 * k], of[0][2 * k + 1], of[1][2 * k + 1]);
        }
      }
    }
  }
  // Lanes of a group have other pixels of the same channel.
  __device__ void add_inputs(const ConvGeometry& g, int first_input, long long* sums) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int input_at = first_input + i % Tile::kChannelBlocks * 16;
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        int sum = static_cast<int>(input[i][odd]);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0 && input_at < g.inputs)
          add_word(sums + i / Tile::kChannelBlocks * g.inputs + input_at + lane / 4 * 2 + odd, sum);
      }
    }
  }
};

template <typename Tile>
__global__ void __launch_bounds__(kThreads, 2)
    sum_wide_kernel(const __grid_constant__ WeightGradientArguments a, const __grid_constant__ WideCut cut) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  const int split = static_cast<int>(blockIdx.x), input_block = static_cast<int>(blockIdx.y),
            first_output = static_cast<int>(blockIdx.z) * Tile::kOutputs;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, output_warp = warp % Tile::kOutputWarps,
            input_warp = warp / Tile::kOutputWarps;
  const PixelTiles& t = cut.tiles;
  int* places = reinterpret_cast<int*>(memory);
  int* error_sums = places + cut.padded_positions();
  std::uint8_t* stages = reinterpret_cast<std::uint8_t*>(error_sums + Tile::kTaps * Tile::kOutputs);
  const auto stage_at = [&](int item) { return WideStage<Tile>(cut, stages, item % kStages); };
  typename Tile::Rows rows(t);
  const bool takes_inputs = output_warp == 0 && first_output == 0,
             takes_errors = input_block == 0 && GradientValues(a).needs_errors();

  const int first_tile = split * cut.split_tiles;
  WarpSums<Tile> sums;
  const auto load = [&](int item) {
    rows.load(first_tile + item, input_block, 0, stage_at(item).input);
    stage_at(item).load_error(a, cut, first_tile + item, first_output);
  };
  const auto prepare = [&] {
    for (int i = static_cast<int>(threadIdx.x); i < cut.padded_positions(); i += kThreads)
      places[i] = TilePosition(t, min(i, t.positions() - 1)).place(t);
    for (int i = static_cast<int>(threadIdx.x); i < Tile::kTaps * Tile::kOutputs; i += kThreads)
      error_sums[i] = 0;
    for (int i = 0; i < kStages; ++i) stage_at(i).clear_padding(cut);
  };
  for_each_item<kStages>(min(cut.split_tiles, t.tiles - first_tile), load, prepare, [&](int item) {
    for (int step = 0; step < cut.padded_positions() / kStepPixels; ++step)
      sums.add_step(cut, stage_at(item), step, places, output_warp, input_warp, takes_inputs);
    if (takes_errors) add_error_sums(a, cut, stage_at(item), first_tile + item, error_sums);
  });

  const int warp_output = first_output + output_warp * Tile::kOutputTiles * 16,
            warp_input = (input_block * Tile::kInputChannelBlocks + input_warp * Tile::kChannelBlocks) * 16;
  const long long words = static_cast<long long>(a.g.outputs) * Tile::kTaps * a.g.inputs;
  sums.store_products(a.g, warp_output, warp_input, static_cast<int*>(a.products) + split * words);
  const TileWords to(a.work, 0, sums_of(a.g));
  if (takes_inputs) sums.add_inputs(a.g, warp_input, to.inputs);
  if (!takes_errors) return;
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kTaps * Tile::kOutputs; i += kThreads) {
    const int output = first_output + i % Tile::kOutputs;
    if (output < a.g.outputs) add_word(to.errors + i / Tile::kOutputs * a.g.outputs + output, error_sums[i]);
  }
}

// ---- Values ----------------------------------------------------------------------------------------------------------

constexpr int kFinishThreads = 256;
constexpr int kMostGroups = 8;  // of splits, which threads of a block share

// A thread adds four neighbours over the splits of its group; then the groups are added.
__global__ void __launch_bounds__(kFinishThreads)
    finish_wide_kernel(const __grid_constant__ WeightGradientArguments a, int splits, int groups) {
  __shared__ long long sums[4][kFinishThreads];
  const int thread = static_cast<int>(threadIdx.x), columns = kFinishThreads / groups,
            group = thread / columns;
  const int words = a.g.outputs * a.g.taps() * a.g.inputs, first = static_cast<int>(blockIdx.x) * 4 * columns;
  const int mine = first + thread % columns * 4;
  long long sum[4]{};
  if (mine < words) {
    const int* from = static_cast<const int*>(a.products) + mine;
#pragma unroll 4
    for (int split = group; split < splits; split += groups) {
      const int4 of = __ldcs(reinterpret_cast<const int4*>(from + static_cast<long long>(split) * words));
      sum[0] += of.x;
      sum[1] += of.y;
      sum[2] += of.z;
      sum[3] += of.w;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i][thread] = sum[i];
  __syncthreads();
  const GradientValues values(a);
  const TileWords of(a.work, 0, sums_of(a.g));
  for (int i = thread; i < 4 * columns && first + i < words; i += kFinishThreads) {
    const int at = first + i, input = at % a.g.inputs, row = at / a.g.inputs, tap = row % a.g.taps(),
              output = row / a.g.taps();
    long long all = 0;
    for (int g = 0; g < groups; ++g) all += sums[i % 4][g * columns + i / 4];
    a.dw[at] = values.value(pixels_of_tap(a.g, tap), all, of.inputs[tap * a.g.inputs + input],
                            of.errors[tap * a.g.outputs + output]);
  }
}

template <typename Tile>
std::size_t block_bytes(const WideCut& cut) {
  return sizeof(int) * static_cast<std::size_t>(cut.padded_positions() + Tile::kTaps * Tile::kOutputs) +
         kStages * WideStage<Tile>::bytes(cut);
}

template <typename Tile>
std::size_t product_bytes(const WeightGradientArguments& a) {
  const WideCut cut = WideCut::of<Tile>(a);
  if (block_bytes<Tile>(cut) > most_shared_bytes()) return 0;
  return sizeof(int) * static_cast<std::size_t>(cut.splits) *
         static_cast<std::size_t>(a.g.outputs * a.g.taps() * a.g.inputs);
}

template <typename Tile>
void launch(const WeightGradientArguments& a, cudaStream_t stream) {
  const WideCut cut = WideCut::of<Tile>(a);
  const dim3 grid(static_cast<unsigned>(cut.splits),
                  static_cast<unsigned>(divide_up(a.g.inputs, Tile::kInputs)),
                  static_cast<unsigned>(divide_up(a.g.outputs, Tile::kOutputs)));
  launch_kernel<sum_wide_kernel<Tile>>("wide_weight_gradient", grid, kThreads, block_bytes<Tile>(cut), stream,
                                       a, cut);
  int groups = 1;
  while (groups < kMostGroups && 2 * groups <= cut.splits) groups *= 2;
  const int weights = a.g.outputs * a.g.taps() * a.g.inputs;
  finish_wide_kernel<<<static_cast<unsigned>(divide_up(weights, 4 * kFinishThreads / groups)), kFinishThreads,
                       0, stream>>>(a, cut.splits, groups);
  check_launch("finish_wide_weight_gradient");
}

// Calls with(tile) with the tile of a block for such a weight.
template <typename With>
auto with_tile(const ConvGeometry& g, const With& with) {
  if (g.taps() == 9) return with(NineTaps());
  if (g.outputs <= 64) return with(OneTap<1>());
  if (g.inputs <= 64) return with(OneTap<4>());
  return with(OneTap<2>());
}

}  // namespace

bool is_wide(const ConvGeometry& g) {
  const bool square = g.kernel_rows == g.kernel_cols && (g.kernel_rows == 1 || g.kernel_rows == 3);
  return square && !g.depthwise && g.outputs % 16 == 0 && g.inputs % 16 == 0 && g.outputs >= 64 &&
         g.inputs >= 32;
}

std::size_t wide_weight_gradient_work_bytes(const ConvGeometry& g) {
  return sizeof(long long) * static_cast<std::size_t>(sums_of(g).all());
}

std::size_t wide_weight_gradient_product_bytes(const ConvGeometry& g) {
  if (!is_wide(g)) return 0;
  WeightGradientArguments a;
  a.g = g;
  return with_tile(g, [&](auto tile) { return product_bytes<decltype(tile)>(a); });
}

void wide_weight_gradient(const WeightGradientArguments& a, cudaStream_t stream) {
  with_tile(a.g, [&](auto tile) { launch<decltype(tile)>(a, stream); });
}

}  // namespace lowtide::cuda
