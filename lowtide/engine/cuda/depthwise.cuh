#pragma once

#include <algorithm>
#include <limits>

#include "lowtide/engine/cuda/depthwise.h"
#include "lowtide/engine/cuda/divisor.cuh"
#include "lowtide/engine/cuda/product.cuh"
#include "lowtide/engine/cuda/statistics.cuh"

// What the kernels for depthwise convolutions share. A block's pixels lie in shared memory as bytes, each read once, with what
// its taps read around them. Beyond the image lies the code of 0, which adds nothing to sums of codes less that one, so that
// only the small distance of that code from 0 depends on where an image ends (or code 0, in a walk that counts the taps
// inside). A thread has four channels, which are a word of a pixel; words of four neighbouring pixels become words of four
// pixels of a channel, which `dp4a` multiplies by a row of taps.

namespace lowtide::cuda {

inline constexpr int kDepthwiseThreads = 256;
inline constexpr int kMostDepthwiseBlocks = 264;  // two for a multiprocessor of an H200
// Channels of a block: few, so that it adds little to memory in the end; many, so that bytes lie in long runs.
inline constexpr int kMostGroupChannels = 144;

// A step of a walk computes kDown × kAcross results from kRows × kCols pixels of the source, which the next step reads
// kSourceDown or kSourceAcross pixels further on.
struct SingleSteps {  // in steps of 1, the output and the input gradient
  static constexpr int kDown = 1, kAcross = 2, kSourceDown = 1, kSourceAcross = 2, kRows = 3, kCols = 4;
};
struct DoubleSteps {  // in steps of 2, the output
  static constexpr int kDown = 1, kAcross = 1, kSourceDown = 2, kSourceAcross = 2, kRows = 3, kCols = 3;
};
struct HalfSteps {  // in steps of 2, the input gradient: pixels of each parity have taps of their own
  static constexpr int kDown = 2, kAcross = 2, kSourceDown = 1, kSourceAcross = 1, kRows = 2, kCols = 2;
};

// Which of three neighbours from `first` on lie inside, a bit each.
__host__ __device__ inline unsigned three_inside(int first, int size) {
  unsigned bits = 0;
  for (int i = 0; i < 3; ++i)
    bits |= static_cast<unsigned>(first + i) < static_cast<unsigned>(size) ? 1u << i : 0u;
  return bits;
}

// How the work is cut. Items are runs of steps down an image; a tile holds those of some columns and rows, or of whole images.
struct DepthwiseCut {
  int images = 0, source_rows = 0, source_cols = 0, result_rows = 0, result_cols = 0, channels = 0;
  int group = 0, words = 0, lanes = 0;  // channels of a block, in words of four; threads that share a word
  int first_row = 0, first_col = 0;     // in the source, of the first step
  int first_result_row = 0, first_result_col = 0;
  int steps_down = 0, steps_across = 0;  // of an image
  int item_steps = 0, tile_items = 0;    // of an item; items of a tile one below the other
  int tile_images = 0, strips = 0, tiles = 0;
  int tile_rows = 0, tile_cols = 0, most_results = 0;  // pixels of a tile: of the source of an image; results
  EdgeKinds rows, cols;                                // of results, told apart by the taps that lie inside
  Divisor by_words, by_units, by_tile_cols, by_tile_rows, by_across, by_items;

  int groups() const { return channels / group; }
  int blocks() const { return std::max(1, std::min(tiles, kMostDepthwiseBlocks / groups())); }
  // Of a block, whose next tile is on its way while one is computed.
  std::size_t stages_bytes() const {
    return static_cast<std::size_t>((tiles > blocks() ? 2 : 1) * tile_bytes());
  }
  // Of constants by kind of pixel, then of tiles.
  __host__ __device__ int constant_bytes() const {
    return static_cast<int>(sizeof(float)) * rows.count() * cols.count() * group;
  }
  std::size_t shared_bytes() const { return static_cast<std::size_t>(constant_bytes()) + stages_bytes(); }
  __host__ __device__ int tile_bytes() const { return tile_images * tile_rows * tile_cols * group; }
  unsigned threads() const { return static_cast<unsigned>(round_up(words * lanes, kWarp)); }
};

// A block's channels: all where they are few, or else the most that divide them and are not above `most`.
inline int depthwise_group(int channels, int most) {
  int group = kDepthwiseUnit;
  for (int of = kDepthwiseUnit; of <= most && of <= channels; of += kDepthwiseUnit) {
    if (channels % of == 0) group = of;
  }
  return group;
}

// The cut of all that takes the least time: the rounds of a block's lanes, in steps of a walk.
template <typename Steps>
void cut_steps(DepthwiseCut& cut) {
  constexpr int kWantedBytes = 96 * 1024;  // so that two blocks fit onto a multiprocessor
  // What an item and a tile take beside their steps, in steps: rows that are read twice, and waiting. Estimates.
  constexpr int kOfItem = 1, kOfTile = 3;
  cut.words = cut.group / 4;
  cut.lanes = std::max(1, kDepthwiseThreads / cut.words);
  cut.tile_cols = (cut.steps_across - 1) * Steps::kSourceAcross + Steps::kCols;
  DepthwiseCut best;
  long long least = -1;
  const auto consider = [&](int item_steps, int tile_items, int tile_images) {
    const int steps = tile_items * item_steps;
    cut.item_steps = item_steps;
    cut.tile_items = tile_items;
    cut.tile_images = tile_images;
    cut.strips = divide_up(cut.steps_down, steps);
    cut.tiles = divide_up(cut.images, tile_images) * cut.strips;
    cut.tile_rows = (steps - 1) * Steps::kSourceDown + Steps::kRows;
    cut.most_results = tile_images * std::min(steps * Steps::kDown, cut.result_rows) * cut.result_cols;
    const int rounds = divide_up(tile_images * tile_items * cut.steps_across, cut.lanes);
    const long long time = static_cast<long long>(divide_up(cut.tiles, cut.blocks())) *
                           (rounds * (item_steps + kOfItem) + kOfTile);
    const bool fits = cut.shared_bytes() <= kWantedBytes;
    if (least >= 0 && !(fits && time < least)) return;
    best = cut;
    least = fits ? time : std::numeric_limits<long long>::max();
  };
  for (int item_steps = 1; item_steps <= 8 && item_steps < 2 * cut.steps_down; item_steps *= 2) {
    const int items_down = divide_up(cut.steps_down, item_steps);
    for (int items = 1; items <= items_down; ++items) consider(item_steps, items, 1);
    for (int images = 2; images <= std::min(cut.images, 16); ++images)
      consider(item_steps, items_down, images);
  }
  cut = best;
}

// Of an output; or transposed, of an input gradient.
template <typename Steps>
DepthwiseCut depthwise_cut(const ConvGeometry& g, bool transposed) {
  const std::size_t most_bytes = std::min<std::size_t>(200 * 1024, most_shared_bytes());
  DepthwiseCut cut;
  cut.images = g.images;
  cut.channels = g.inputs;
  cut.source_rows = transposed ? g.rows : g.height;
  cut.source_cols = transposed ? g.cols : g.width;
  cut.result_rows = transposed ? g.height : g.rows;
  cut.result_cols = transposed ? g.width : g.cols;
  const int last_tap = kDepthwiseKernel - 1;
  cut.first_row = transposed ? (g.stride_rows == 1 ? g.pad_rows - last_tap : -1) : -g.pad_rows;
  cut.first_col = transposed ? (g.stride_cols == 1 ? g.pad_cols - last_tap : -1) : -g.pad_cols;
  if (Steps::kDown == 2) {
    cut.first_result_row = -g.pad_rows;
    cut.first_result_col = -g.pad_cols;
  }
  cut.steps_down = divide_up(cut.result_rows - cut.first_result_row, Steps::kDown);
  cut.steps_across = divide_up(cut.result_cols - cut.first_result_col, Steps::kAcross);
  if (Steps::kDown == 1) {
    const auto inside = [](int stride, int first, int size) {
      return [=](int at) { return three_inside(at * stride + first, size); };
    };
    cut.rows = EdgeKinds(cut.result_rows, inside(Steps::kSourceDown, cut.first_row, cut.source_rows));
    cut.cols =
        EdgeKinds(cut.result_cols, inside(transposed ? 1 : g.stride_cols, cut.first_col, cut.source_cols));
  }
  for (int most = kMostGroupChannels;; most /= 2) {
    cut.group = depthwise_group(cut.channels, most);
    cut_steps<Steps>(cut);
    if (cut.shared_bytes() <= most_bytes || most <= kDepthwiseUnit) break;
  }
  cut.by_words = Divisor(cut.words);
  cut.by_units = Divisor(cut.group / kDepthwiseUnit);
  cut.by_tile_cols = Divisor(cut.tile_cols);
  cut.by_tile_rows = Divisor(cut.tile_rows);
  cut.by_across = Divisor(cut.steps_across);
  cut.by_items = Divisor(cut.tile_items);
  return cut;
}

// A tile: its first image and step.
struct DepthwiseTile {
  int image, step;

  __device__ DepthwiseTile(const DepthwiseCut& cut, int tile)
      : image(tile / cut.strips * cut.tile_images),
        step(tile % cut.strips * cut.tile_items * cut.item_steps) {}
};

// Pixels of images in shared memory; `fill`: of those beyond.
struct TilePixels {
  int images, rows, cols;    // of the tile
  int image, row, col;       // its first
  Divisor by_cols, by_rows;  // of the tile
};
__device__ inline void load_pixels(const TilePixels& tile, const std::uint8_t* code, int images, int rows,
                                   int cols, int channels, int first_channel, const Divisor& by_units,
                                   unsigned fill, std::uint8_t* memory) {
  const int units = static_cast<int>(by_units.divisor), count = tile.images * tile.rows * tile.cols * units;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const int pixel = by_units.of(i), line = tile.by_cols.of(pixel), image = tile.by_rows.of(line);
    const int row = tile.row + line - image * tile.rows, col = tile.col + pixel - line * tile.cols;
    std::uint8_t* to = memory + i * kDepthwiseUnit;
    const bool inside = tile.image + image < images &&
                        static_cast<unsigned>(row) < static_cast<unsigned>(rows) &&
                        static_cast<unsigned>(col) < static_cast<unsigned>(cols);
    if (inside) {
      const long long at = (static_cast<long long>(tile.image + image) * rows + row) * cols + col;
      copy_async<kDepthwiseUnit>(to,
                                 code + at * channels + first_channel + (i - pixel * units) * kDepthwiseUnit);
    } else {
      *reinterpret_cast<uint4*>(to) = make_uint4(fill, fill, fill, fill);
    }
  }
}

// Words of four pixels, a channel a byte, as words of four channels, a pixel a byte.
__device__ inline void transpose_bytes(const unsigned (&pixel)[4], unsigned (&channel)[4]) {
  const unsigned a = __byte_perm(pixel[0], pixel[1], 0x5140), b = __byte_perm(pixel[2], pixel[3], 0x5140),
                 c = __byte_perm(pixel[0], pixel[1], 0x7362), d = __byte_perm(pixel[2], pixel[3], 0x7362);
  channel[0] = __byte_perm(a, b, 0x5410);
  channel[1] = __byte_perm(a, b, 0x7632);
  channel[2] = __byte_perm(c, d, 0x5410);
  channel[3] = __byte_perm(c, d, 0x7632);
}

// Small whole numbers in the low bits of a float: 1.5 · 2^23 + n, for n within 2^22. Here n is at most 9 · 255².
inline constexpr unsigned kWholeBits = 0x4b400000u;
__device__ inline float whole(unsigned bits) { return __fsub_rn(__uint_as_float(bits), 0x1.8p23f); }

// Makes values of sums over taps, for the four channels of a thread. The formula is that of dense outputs (output_values.cuh),
// with windows that have all their taps: with x = sx (qx - zx) + ex and w = sw (qw - zw) + ew, over the n taps inside the image,
//   Σ x·w = sx sw Σ (qx - zx)(qw - zw) + sx ew Σ (qx - zx) + ex (sw Σ (qw - zw) + n ew).
struct DepthwiseValues {
  Affine source;
  unsigned zero[4];
  float factor[4], window[4];

  __device__ DepthwiseValues(const Affine& of_source, const DepthwiseChannel* channel) : source(of_source) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      zero[j] = static_cast<unsigned>(channel[j].zero);
      factor[j] = __fmul_rn(source.scale, channel[j].scale);
      window[j] = static_cast<float>(static_cast<double>(source.scale) * channel[j].residual);
    }
  }
  // What a thread's sums start at, rather than at 0: value() then gets the formula's sums by whole() and nothing else.
  __device__ unsigned window_start(int taps) const {
    return kWholeBits - static_cast<unsigned>(taps * source.zero);
  }
  // `sum`: Σ (qw - zw) of these taps.
  __device__ unsigned product_start(int j, int taps, int sum) const {
    return kWholeBits - static_cast<unsigned>(source.zero * sum) + zero[j] * window_start(taps);
  }
  __device__ float value(int j, unsigned product, unsigned window_sum, float last) const {
    const float sum = whole(product - zero[j] * window_sum);
    return __fadd_rn(__fmul_rn(sum, factor[j]), __fadd_rn(__fmul_rn(whole(window_sum), window[j]), last));
  }
  // The last term, where such rows and columns of taps lie inside, a bit each.
  __device__ static float last_term(const Affine& source, const DepthwiseChannel& of, unsigned rows,
                                    unsigned cols) {
    const unsigned ones = (cols & 1u) | (cols & 2u) << 7 | (cols & 4u) << 14;
    unsigned codes = 0;
#pragma unroll
    for (int row = 0; row < kDepthwiseKernel; ++row)
      codes = __dp4a(of.row[row], (rows >> row & 1u) != 0 ? ones : 0u, codes);
    const int n = __popc(rows) * __popc(cols);
    return static_cast<float>(
        source.residual *
        (static_cast<double>(of.scale) * static_cast<double>(static_cast<int>(codes) - n * of.zero) +
         static_cast<double>(n) * of.residual));
  }
};

// One thread's walk down an item, a step at a time: of an output, and in steps of 1 of the gradient too, whose taps are turned around.
template <typename Steps, bool kTurned>
class WindowWalk {
 public:
  static constexpr bool kCountsTaps = false;

  // The last terms of a block's channels, by kind of pixel; by all threads.
  __device__ static void fill(const DepthwiseCut& cut, const Affine& source, const DepthwiseChannel* channels,
                              float* last) {
    const int count = source.residual != 0 ? cut.rows.count() * cut.cols.count() : 1;
    for (int i = static_cast<int>(threadIdx.x); i < count * cut.group; i += static_cast<int>(blockDim.x)) {
      const int kind = i / cut.group, row = cut.rows.example(kind / cut.cols.count()),
                col = cut.cols.example(kind % cut.cols.count());
      unsigned rows = three_inside(cut.first_row + row * Steps::kSourceDown, cut.source_rows),
               cols = three_inside(cut.first_col + col * (Steps::kSourceAcross / Steps::kAcross),
                                   cut.source_cols);
      if (kTurned) {
        rows = __brev(rows) >> 29;
        cols = __brev(cols) >> 29;
      }
      last[i] = DepthwiseValues::last_term(source, channels[i - kind * cut.group], rows, cols);
    }
  }

  // `channel`: the thread's first; `last`: its last term of the first kind.
  __device__ WindowWalk(const DepthwiseCut& cut, const Affine& source, const DepthwiseChannel* channel,
                        const float* last)
      : cut_(cut), values_(source, channel), has_edges_(source.residual != 0), last_(last) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const DepthwiseChannel of = channel[j];
#pragma unroll
      for (int row = 0; row < 3; ++row)
        taps_[row][j] = kTurned ? __byte_perm(of.row[2 - row], 0, 0x4012) : of.row[row];
      start_[j] = values_.product_start(j, kDepthwiseTaps, of.sum);
    }
  }

  // `from`: the first pixel that the first step reads; `col`: of its first result.
  __device__ void begin(const std::uint8_t* from, int col) {
#pragma unroll
    for (int row = 0; row < kKept; ++row) {
      load(from, pixels_[3 - kKept + row]);
      from += cut_.tile_cols * cut_.group;
    }
#pragma unroll
    for (int j = 0; j < Steps::kAcross; ++j)
      last_of_col_[j] = last_ + (has_edges_ ? cut_.cols.kind(col + j) * cut_.group : 0);
  }
  // `from`: as for begin(), of this step; `row`: of its results. Calls each(down, across, values).
  template <typename Each>
  __device__ void step(const std::uint8_t* from, int row, const Each& each) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) pixels_[i][j] = pixels_[3 - kKept + i][j];
    }
#pragma unroll
    for (int i = kKept; i < 3; ++i) load(from + i * cut_.tile_cols * cut_.group, pixels_[i]);
    const int last_of_row = has_edges_ ? cut_.rows.kind(row) * cut_.cols.count() * cut_.group : 0;
#pragma unroll
    for (int across = 0; across < Steps::kAcross; ++across) {
      const Four last = Four::load(last_of_col_[across] + last_of_row, 4, true);
      Four result;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        unsigned product = start_[j], window = values_.window_start(kDepthwiseTaps);
#pragma unroll
        for (int i = 0; i < 3; ++i) {
          const unsigned pixels = pixels_[i][j] >> 8 * across;
          product = __dp4a(pixels, taps_[i][j], product);
          window = __dp4a(pixels, 0x00010101u, window);
        }
        result.value[j] = values_.value(j, product, window, last.value[j]);
      }
      each(0, across, result);
    }
  }

 private:
  static constexpr int kKept = Steps::kRows - Steps::kSourceDown;  // rows that the next step reads again

  __device__ void load(const std::uint8_t* from, unsigned (&to)[4]) const {
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      word[i] = i < Steps::kCols ? *reinterpret_cast<const unsigned*>(from + i * cut_.group) : 0u;
    transpose_bytes(word, to);
  }

  const DepthwiseCut& cut_;
  DepthwiseValues values_;
  bool has_edges_;
  const float *last_, *last_of_col_[Steps::kAcross];
  unsigned taps_[3][4], start_[4];
  unsigned pixels_[3][4];  // four pixels of three rows, by channel
};

// The input gradient in steps of 2. Of two neighbouring results the first tap and the last one lead to one, from the second and the
// first of two pixels of the source; to the other leads the middle tap, from the second pixel. Four results have 4, 2, 2 and 1 of
// four pixels. What a window lacks at an edge is told by Σ (qw - zw) over the taps inside, which is no more work than a constant
// in a register here; the last term is rounded as floats are.
class ParityWalk {
 public:
  static constexpr bool kCountsTaps = true;

  __device__ static void fill(const DepthwiseCut&, const Affine&, const DepthwiseChannel*, float*) {}

  __device__ ParityWalk(const DepthwiseCut& cut, const Affine& source, const DepthwiseChannel* channel,
                        const float* /*last*/)
      : cut_(cut), values_(source, channel), residual_(static_cast<float>(source.residual)) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const DepthwiseChannel of = channel[j];
      scale_[j] = of.scale;
      channel_residual_[j] = static_cast<float>(of.residual);
#pragma unroll
      for (int parity = 0; parity < 4; ++parity) {
        const bool middle_row = parity / 2 == 1, middle_col = parity % 2 == 1;
        const unsigned select = middle_col ? 0x4414u : 0x4402u;
        taps_[parity][j] = middle_row
                               ? __byte_perm(of.row[1], 0, select) << 16
                               : __byte_perm(of.row[2], 0, select) | __byte_perm(of.row[0], 0, select) << 16;
      }
    }
  }

  __device__ void begin(const std::uint8_t* /*from*/, int col) {
    const int first = (col - cut_.first_result_col) / 2 + cut_.first_col;
    cols_inside_ = (first >= 0 ? 0x00010001u : 0u) | (first + 1 < cut_.source_cols ? 0x01000100u : 0u);
  }
  template <typename Each>
  __device__ void step(const std::uint8_t* from, int row, const Each& each) {
    const std::uint8_t* below = from + cut_.tile_cols * cut_.group;
    const auto word = [](const std::uint8_t* at) { return *reinterpret_cast<const unsigned*>(at); };
    const unsigned words[4] = {word(from), word(from + cut_.group), word(below), word(below + cut_.group)};
    unsigned pixels[4];
    transpose_bytes(words, pixels);
    const int first = (row - cut_.first_result_row) / 2 + cut_.first_row;
    const unsigned inside =
        cols_inside_ & ((first >= 0 ? 0x0101u : 0u) | (first + 1 < cut_.source_rows ? 0x01010000u : 0u));
#pragma unroll
    for (int parity = 0; parity < 4; ++parity) {
      const unsigned ones = (parity / 2 == 1 ? 0x01010000u : 0x01010101u) &
                            (parity % 2 == 1 ? 0x01000100u : 0x01010101u),
                     taps_inside = inside & ones;
      const int n = __popc(taps_inside);
      const float terms = static_cast<float>(n);
      Four result;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const unsigned sum =
            __dp4a(taps_[parity][j], taps_inside, 0u) - static_cast<unsigned>(n) * values_.zero[j];
        const unsigned product =
            __dp4a(pixels[j], taps_[parity][j], values_.product_start(j, n, static_cast<int>(sum)));
        const unsigned window = __dp4a(pixels[j], ones, values_.window_start(n));
        const float last = residual_ * (scale_[j] * whole(kWholeBits + sum) + terms * channel_residual_[j]);
        result.value[j] = values_.value(j, product, window, last);
      }
      each(parity / 2, parity % 2, result);
    }
  }

 private:
  const DepthwiseCut& cut_;
  DepthwiseValues values_;
  float residual_, scale_[4], channel_residual_[4];
  unsigned taps_[4][4];   // by parity and channel
  unsigned cols_inside_;  // of the four pixels, a byte each
};

template <typename Steps, bool kTransposed>
struct WalkOf {
  using Type = WindowWalk<Steps, kTransposed>;
};
template <>
struct WalkOf<HalfSteps, true> {
  using Type = ParityWalk;
};

// Where a thread of a block stands.
struct DepthwiseThread {
  int word, lane, channel;  // the first of its four channels

  __device__ explicit DepthwiseThread(const DepthwiseCut& cut)
      : lane(cut.by_words.of(static_cast<int>(threadIdx.x))) {
    word = static_cast<int>(threadIdx.x) - lane * cut.words;
    channel = static_cast<int>(blockIdx.y) * cut.group + 4 * word;
  }
  __device__ bool works(const DepthwiseCut& cut) const { return lane < cut.lanes; }
};

// All results of a block's tiles. The epilogue is asked for each number of four channels:
//   fetch(at): what it reads of its own for the results from element `at` on, a step ahead where registers suffice;
//   take(at, values, fetched);
//   finish(memory): by all threads, in the end; the tile's memory is free then.
template <typename Steps, bool kTransposed, typename Epilogue>
__device__ void walk_tiles(const DepthwiseCut& cut, const Codes& codes, const DepthwiseChannel* channels,
                           Epilogue& epilogue, std::uint8_t* memory) {
  using Fetched = typename Epilogue::Fetched;
  using Walk = typename WalkOf<Steps, kTransposed>::Type;
  const DepthwiseThread thread(cut);
  const Affine source = Affine::of(codes);
  const unsigned fill = Walk::kCountsTaps ? 0u : static_cast<unsigned>(source.zero) * 0x01010101u;
  float* const last = reinterpret_cast<float*>(memory);
  memory += cut.constant_bytes();
  const auto load = [&](int number, int stage) {
    if (number < cut.tiles) {
      const DepthwiseTile tile(cut, number);
      load_pixels({.images = cut.tile_images,
                   .rows = cut.tile_rows,
                   .cols = cut.tile_cols,
                   .image = tile.image,
                   .row = cut.first_row + tile.step * Steps::kSourceDown,
                   .col = cut.first_col,
                   .by_cols = cut.by_tile_cols,
                   .by_rows = cut.by_tile_rows},
                  codes.code, cut.images, cut.source_rows, cut.source_cols, cut.channels,
                  static_cast<int>(blockIdx.y) * cut.group, cut.by_units, fill,
                  memory + stage * cut.tile_bytes());
    }
    commit_copies();
  };
  const int blocks = static_cast<int>(gridDim.x);
  int stage = 0;
  load(static_cast<int>(blockIdx.x), stage);
  Walk::fill(cut, source, channels + blockIdx.y * cut.group, last);
  Walk walk(cut, source, channels + (thread.works(cut) ? thread.channel : 0), last + 4 * thread.word);
  for (int number = static_cast<int>(blockIdx.x); number < cut.tiles; number += blocks, stage ^= 1) {
    load(number + blocks, stage ^ 1);
    const DepthwiseTile tile(cut, number);
    wait_for_copies<1>();
    __syncthreads();
    if (thread.works(cut)) {
      const int items = cut.tile_images * cut.tile_items * cut.steps_across;
#pragma unroll 1
      for (int item = thread.lane; item < items; item += cut.lanes) {
        const int line = cut.by_across.of(item), across = item - line * cut.steps_across,
                  in_tile = cut.by_items.of(line), down = (line - in_tile * cut.tile_items) * cut.item_steps;
        const int first = tile.step + down, end = min(first + cut.item_steps, cut.steps_down);
        if (tile.image + in_tile >= cut.images) break;
        const int first_pixel = (in_tile * cut.tile_rows + down * Steps::kSourceDown) * cut.tile_cols +
                                across * Steps::kSourceAcross;
        const std::uint8_t* from =
            memory + stage * cut.tile_bytes() + first_pixel * cut.group + 4 * thread.word;
        // The first result of a step, which may lie beyond the image.
        int row = cut.first_result_row + first * Steps::kDown;
        const int col = cut.first_result_col + across * Steps::kAcross;
        long long at =
            (static_cast<long long>((tile.image + in_tile) * cut.result_rows + row) * cut.result_cols + col) *
                cut.channels +
            thread.channel;
        bool cols_inside[Steps::kAcross];
#pragma unroll
        for (int j = 0; j < Steps::kAcross; ++j)
          cols_inside[j] = static_cast<unsigned>(col + j) < static_cast<unsigned>(cut.result_cols);
        const auto element = [&](int i, int j) { return at + (i * cut.result_cols + j) * cut.channels; };
        const auto is_inside = [&](int i, int j) {
          return cols_inside[j] && (Steps::kDown == 1 ||
                                    static_cast<unsigned>(row + i) < static_cast<unsigned>(cut.result_rows));
        };
        Fetched next[Steps::kDown][Steps::kAcross];
        const auto fetch = [&](long long ahead) {
#pragma unroll
          for (int i = 0; i < Steps::kDown; ++i) {
#pragma unroll
            for (int j = 0; j < Steps::kAcross; ++j) {
              if (is_inside(i, j)) next[i][j] = epilogue.fetch(element(i, j) + ahead);
            }
          }
        };
        constexpr bool kAhead = Steps::kDown == 1;
        const int step_elements = Steps::kDown * cut.result_cols * cut.channels;
        if (kAhead) fetch(0);
        walk.begin(from, col);
#pragma unroll 1
        for (int step = first; step < end; ++step) {
          if (!kAhead) fetch(0);
          Fetched fetched[Steps::kDown][Steps::kAcross];
#pragma unroll
          for (int i = 0; i < Steps::kDown; ++i) {
#pragma unroll
            for (int j = 0; j < Steps::kAcross; ++j) fetched[i][j] = next[i][j];
          }
          if (kAhead && step + 1 < end) fetch(step_elements);
          walk.step(from, row, [&](int i, int j, const Four& values) {
            if (is_inside(i, j)) epilogue.take(element(i, j), values, fetched[i][j]);
          });
          from += Steps::kSourceDown * cut.tile_cols * cut.group;
          at += step_elements;
          row += Steps::kDown;
        }
      }
    }
    __syncthreads();  // the tile was read
  }
}

// Joins what lanes know of channels, in the order of lanes: one thread for each channel calls join(channel, of). `memory` is free
// shared memory of lane_bytes().
template <typename Of, typename Join>
__device__ void join_lanes(const DepthwiseCut& cut, const Of (&mine)[4], std::uint8_t* memory,
                           const Join& join) {
  const DepthwiseThread thread(cut);
  Of* all = reinterpret_cast<Of*>(memory);
  if (thread.works(cut)) {
#pragma unroll
    for (int j = 0; j < 4; ++j) all[thread.lane * cut.group + 4 * thread.word + j] = mine[j];
  }
  __syncthreads();
  for (int channel = static_cast<int>(threadIdx.x); channel < cut.group;
       channel += static_cast<int>(blockDim.x)) {
    Of of = all[channel];
    for (int lane = 1; lane < cut.lanes; ++lane) of.add(all[lane * cut.group + channel]);
    join(static_cast<int>(blockIdx.y) * cut.group + channel, of);
  }
}

template <typename Cut>
std::size_t lane_bytes(const Cut& cut, std::size_t of_channel) {
  return static_cast<std::size_t>(cut.lanes * cut.group) * of_channel;
}

template <auto kKernel, typename... Arguments>
void launch_depthwise(const char* name, const DepthwiseCut& cut, std::size_t shared_bytes,
                      cudaStream_t stream, const Arguments&... arguments) {
  const int blocks = std::max(1, std::min(cut.tiles, kMostDepthwiseBlocks / cut.groups()));
  launch_kernel<kKernel>(name, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(cut.groups())),
                         static_cast<int>(cut.threads()), shared_bytes, stream, cut, arguments...);
}

}  // namespace lowtide::cuda
