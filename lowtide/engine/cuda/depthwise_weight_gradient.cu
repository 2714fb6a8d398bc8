// The gradient at a depthwise convolution's weight: for each channel and tap a sum of products of bytes over pixels. Words of four
// pixels of the error and of the input, a channel each, are multiplied by `dp4a`; sums are integers, which blocks add up in memory.
// The last block of a group of channels turns them into values.
#include "lowtide/engine/cuda/depthwise.cuh"
#include "lowtide/engine/cuda/weight_gradient.cuh"

namespace lowtide::cuda {
namespace {

constexpr int kAcross = 4;      // columns of the error that a thread takes at once
constexpr int kSumsAtOnce = 3;  // of taps, which go through shared memory together

// Sums in memory, by channel: of products and of the input's codes by tap; of the error's codes, of all and of those that a tap leads
// to. Then a counter of blocks for each group of channels.
struct SumPlaces {
  long long *products, *inputs, *errors, *errors_inside;
  unsigned* blocks_done;
  static constexpr int kWords = 3 * kDepthwiseTaps + 1;

  __device__ SumPlaces(void* work, int channels)
      : products(static_cast<long long*>(work)),
        inputs(products + kDepthwiseTaps * channels),
        errors(inputs + kDepthwiseTaps * channels),
        errors_inside(errors + channels),
        blocks_done(reinterpret_cast<unsigned*>(errors_inside + kDepthwiseTaps * channels)) {}
};

struct WeightCut {
  int group = 0, words = 0, lanes = 0;
  int tile_images = 1, tile_rows = 0, strips = 0, tiles = 0, blocks = 0;  // of the error
  int runs = 0;                                                           // of kAcross columns
  int error_cols = 0, input_rows = 0, input_cols = 0;                     // in shared memory, of an image
  Divisor by_words, by_units, by_error_cols, by_error_rows, by_input_cols, by_input_rows, by_runs, by_rows,
      by_group;

  explicit WeightCut(const ConvGeometry& g) {
    constexpr int kWantedBytes = 48 * 1024;
    // What all blocks add to memory in the end grows with their number.
    constexpr int kMostWords = 500'000;
    runs = divide_up(g.cols, kAcross);
    error_cols = runs * kAcross;
    input_cols = (error_cols - 1) * g.stride_cols + kDepthwiseKernel;
    for (int most = kMostGroupChannels;; most /= 2) {
      group = depthwise_group(g.inputs, most);
      words = group / 4;
      lanes = std::max(1, kDepthwiseThreads / words);
      // Two rounds for every lane.
      for (int items = 2 * lanes;; items /= 2) {
        tile_rows = std::clamp(divide_up(items, runs), 1, g.rows);
        tile_images = tile_rows < g.rows ? 1 : std::clamp(items / (runs * g.rows), 1, g.images);
        input_rows = (tile_rows - 1) * g.stride_rows + kDepthwiseKernel;
        if (tile_bytes() <= kWantedBytes || items <= 1) break;
      }
      if (tile_bytes() <= kWantedBytes || group == kDepthwiseUnit) break;
    }
    strips = divide_up(g.rows, tile_rows);
    tiles = divide_up(g.images, tile_images) * strips;
    const int most = std::min(kMostDepthwiseBlocks / (g.inputs / group), kMostWords / (19 * g.inputs));
    const int least = divide_up(tiles, std::max(1, kMostPixelsPerBlock / (tile_images * tile_rows * g.cols)));
    blocks = std::clamp(std::max(most, least), 1, tiles);
    by_words = Divisor(words);
    by_units = Divisor(group / kDepthwiseUnit);
    by_error_cols = Divisor(error_cols);
    by_error_rows = Divisor(tile_rows);
    by_input_cols = Divisor(input_cols);
    by_input_rows = Divisor(input_rows);
    by_runs = Divisor(runs);
    by_rows = Divisor(tile_rows);
    by_group = Divisor(group);
  }
  __host__ __device__ int error_bytes() const { return tile_images * tile_rows * error_cols * group; }
  __host__ __device__ int input_bytes() const { return tile_images * input_rows * input_cols * group; }
  __host__ __device__ int tile_bytes() const { return error_bytes() + input_bytes(); }
};

// Sums of a thread's four channels.
struct LaneSums {
  unsigned products[kDepthwiseTaps][4]{}, inputs[kDepthwiseTaps][4]{}, errors[4]{};
};

template <int kStride>
__global__ void __launch_bounds__(kDepthwiseThreads, 2)
    depthwise_weight_gradient_kernel(const __grid_constant__ WeightCut cut,
                                     const __grid_constant__ WeightGradientArguments a) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  const int lane = cut.by_words.of(static_cast<int>(threadIdx.x)),
            word = static_cast<int>(threadIdx.x) - lane * cut.words;
  const int first_channel = static_cast<int>(blockIdx.y) * cut.group;
  const ConvGeometry& g = a.g;
  const GradientValues values(a);
  const bool takes_errors = values.input.residual != 0;
  const SumPlaces places(a.work, g.inputs);
  const unsigned fill = static_cast<unsigned>(values.input.zero) * 0x01010101u;

  const auto load = [&](int number, int stage) {
    if (number < cut.tiles) {
      const int image = number / cut.strips * cut.tile_images, row = number % cut.strips * cut.tile_rows;
      std::uint8_t* to = memory + stage * cut.tile_bytes();
      load_pixels({.images = cut.tile_images,
                   .rows = cut.tile_rows,
                   .cols = cut.error_cols,
                   .image = image,
                   .row = row,
                   .col = 0,
                   .by_cols = cut.by_error_cols,
                   .by_rows = cut.by_error_rows},
                  a.dy.code, g.images, g.rows, g.cols, g.inputs, first_channel, cut.by_units, 0, to);
      load_pixels({.images = cut.tile_images,
                   .rows = cut.input_rows,
                   .cols = cut.input_cols,
                   .image = image,
                   .row = row * kStride - g.pad_rows,
                   .col = -g.pad_cols,
                   .by_cols = cut.by_input_cols,
                   .by_rows = cut.by_input_rows},
                  a.x.code, g.images, g.height, g.width, g.inputs, first_channel, cut.by_units, fill,
                  to + cut.error_bytes());
    }
    commit_copies();
  };

  LaneSums sums;
  int stage = 0;
  load(static_cast<int>(blockIdx.x), stage);
  for (int number = static_cast<int>(blockIdx.x); number < cut.tiles;
       number += static_cast<int>(gridDim.x), stage ^= 1) {
    load(number + static_cast<int>(gridDim.x), stage ^ 1);
    const int image = number / cut.strips * cut.tile_images, row = number % cut.strips * cut.tile_rows;
    const std::uint8_t* errors = memory + stage * cut.tile_bytes();
    const std::uint8_t* inputs = errors + cut.error_bytes();
    wait_for_copies<1>();
    __syncthreads();
    const int items = lane < cut.lanes ? cut.tile_images * cut.tile_rows * cut.runs : 0;
#pragma unroll 1
    for (int item = lane; item < items; item += cut.lanes) {
      const int line = cut.by_runs.of(item), col = (item - line * cut.runs) * kAcross,
                in_tile = cut.by_rows.of(line), down = line - in_tile * cut.tile_rows;
      if (image + in_tile >= g.images) break;
      if (row + down >= g.rows) continue;
      const auto words_at = [&](const std::uint8_t* from, int step, unsigned(&channels)[4]) {
        unsigned pixels[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          pixels[i] = *reinterpret_cast<const unsigned*>(from + i * step * cut.group);
        transpose_bytes(pixels, channels);
      };
      unsigned error[4];
      words_at(errors + (line * cut.error_cols + col) * cut.group + 4 * word, 1, error);
      const int there = min(kAcross, g.cols - col);
      const unsigned ones = 0x01010101u >> 8 * (kAcross - there);
#pragma unroll
      for (int j = 0; j < 4; ++j) sums.errors[j] = __dp4a(error[j], ones, sums.errors[j]);
      const std::uint8_t* from =
          inputs +
          ((in_tile * cut.input_rows + down * kStride) * cut.input_cols + col * kStride) * cut.group +
          4 * word;
#pragma unroll
      for (int tap_row = 0; tap_row < kDepthwiseKernel; ++tap_row) {
#pragma unroll
        for (int tap_col = 0; tap_col < kDepthwiseKernel; ++tap_col) {
          const int tap = tap_row * kDepthwiseKernel + tap_col;
          unsigned input[4];
          words_at(from + tap_col * cut.group, kStride, input);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            sums.products[tap][j] = __dp4a(error[j], input[j], sums.products[tap][j]);
            sums.inputs[tap][j] = __dp4a(input[j], ones, sums.inputs[tap][j]);
          }
        }
        from += cut.input_cols * cut.group;
      }
      if (takes_errors) {  // rare: 0 is no code of the input
#pragma unroll 1
        for (int tap = 0; tap < kDepthwiseTaps; ++tap) {
          const int y = (row + down) * kStride - g.pad_rows + tap / kDepthwiseKernel;
          unsigned inside = 0;
          for (int i = 0; i < there; ++i) {
            const int x = (col + i) * kStride - g.pad_cols + tap % kDepthwiseKernel;
            if (x >= 0 && x < g.width) inside |= 1u << 8 * i;
          }
          if (y < 0 || y >= g.height) inside = 0;
#pragma unroll
          for (int j = 0; j < 4; ++j)
            add_word(places.errors_inside + tap * g.inputs + first_channel + 4 * word + j,
                     static_cast<int>(__dp4a(error[j], inside, 0u)));
        }
      }
    }
    __syncthreads();  // the tile was read
  }

  // Lanes' sums, of three taps at once, which are neighbours in memory too.
  auto* shared = reinterpret_cast<int*>(memory);
  const auto add = [&](const auto(&of)[4], int at, long long* to, int count) {
    if (lane < cut.lanes) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        shared[(lane * kSumsAtOnce + at) * cut.group + 4 * word + j] = static_cast<int>(of[j]);
    }
    if (at + 1 < count) return;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count * cut.group; i += static_cast<int>(blockDim.x)) {
      int sum = 0;
      for (int k = 0; k < cut.lanes; ++k) sum += shared[k * kSumsAtOnce * cut.group + i];
      const int kind = cut.by_group.of(i);
      add_word(to + kind * g.inputs + first_channel + i - kind * cut.group, sum);
    }
    __syncthreads();
  };
#pragma unroll
  for (int row = 0; row < kDepthwiseKernel; ++row) {
    const int first = row * kDepthwiseKernel;
#pragma unroll
    for (int i = 0; i < kSumsAtOnce; ++i)
      add(sums.products[first + i], i, places.products + first * g.inputs, kSumsAtOnce);
#pragma unroll
    for (int i = 0; i < kSumsAtOnce; ++i)
      add(sums.inputs[first + i], i, places.inputs + first * g.inputs, kSumsAtOnce);
  }
  add(sums.errors, 0, places.errors, 1);

  if (!is_last_block(places.blocks_done + blockIdx.y, gridDim.x)) return;
  const long long all = g.output_pixels(), zero = values.input.zero;
  for (int i = static_cast<int>(threadIdx.x); i < cut.group * kDepthwiseTaps;
       i += static_cast<int>(blockDim.x)) {
    const int tap = i / cut.group, channel = first_channel + i % cut.group;
    const auto word_at = [&](const long long* from, int by_tap) {
      return static_cast<long long>(__ldcg(from + by_tap * g.inputs + channel));
    };
    const long long inside = pixels_of_tap(g, tap), errors = word_at(places.errors, 0),
                    errors_inside = takes_errors ? word_at(places.errors_inside, tap) : errors;
    // Less what the code of 0 beyond the image has added.
    const long long products = word_at(places.products, tap) - zero * (errors - errors_inside),
                    input = word_at(places.inputs, tap) - zero * (all - inside);
    a.dw[channel * kDepthwiseTaps + tap] = values.value(inside, products, input, errors_inside);
  }
}

}  // namespace

std::size_t depthwise_weight_gradient_work_bytes(int channels) {
  return sizeof(long long) * static_cast<std::size_t>(SumPlaces::kWords * channels) +
         sizeof(unsigned) * static_cast<std::size_t>(channels / kDepthwiseUnit);
}

void depthwise_weight_gradient(const WeightGradientArguments& a, void* stream) {
  const WeightCut cut(a.g);
  const std::size_t bytes =
      std::max(static_cast<std::size_t>((cut.tiles > cut.blocks ? 2 : 1) * cut.tile_bytes()),
               lane_bytes(cut, kSumsAtOnce * sizeof(int)));
  const dim3 grid(static_cast<unsigned>(cut.blocks), static_cast<unsigned>(a.g.inputs / cut.group));
  const int threads = round_up(cut.words * cut.lanes, kWarp);
  const auto launch = [&](auto steps) {
    launch_kernel<depthwise_weight_gradient_kernel<steps>>("depthwise_weight_gradient", grid, threads, bytes,
                                                           static_cast<cudaStream_t>(stream), cut, a);
  };
  if (a.g.stride_rows == 1) return launch(std::integral_constant<int, 1>());
  launch(std::integral_constant<int, 2>());
}

}  // namespace lowtide::cuda
