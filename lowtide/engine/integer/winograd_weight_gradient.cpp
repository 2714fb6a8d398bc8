#include <algorithm>
#include <limits>

#include "lowtide/base/fetch.h"
#include "lowtide/base/parallel.h"
#include "lowtide/engine/integer/conv_methods.h"
#include "lowtide/engine/integer/direct_walk.h"
#include "lowtide/engine/integer/gradient_sums.h"
#include "lowtide/engine/integer/tap_sums.h"
#include "lowtide/engine/integer/tuning.h"
#include "lowtide/engine/integer/wide_sums.h"
#include "lowtide/engine/integer/winograd.h"

namespace lowtide::integer {
namespace {

// The error's codes minus their bias are within ±128, the input's minus their zero point within ±255.
constexpr std::int64_t kTiles = kWinogradGradientTiles, kTilePairs = kTiles / kPair;
constexpr std::int64_t kLargestError = 128, kLargestInput = 255;
constexpr std::int64_t kLargestSum = kLargestError * kLargestInput * kTiles * kTile * kTile;
static_assert(kLargestSum < kWinogradLimit);
static_assert(kLargestError * kErrorGrowth <= kMostShort && kLargestInput * kWindowGrowth <= kMostShort);
// Tiles whose sums 32 bits can hold.
constexpr std::int64_t kMostTiles = std::numeric_limits<std::int32_t>::max() / kLargestSum * kTiles;

constexpr std::int64_t kOutputsAtOnce = kWinogradGradientOutputs;

class WeightSums {
 public:
  WeightSums(const ConvShape& shape, const GradientCodes& codes, const TileKernels& tiles)
      : grid_{.items = shape.input[0], .rows = shape.output_height(), .cols = shape.output_width()},
        inputs_(shape.weight[1]),
        outputs_(shape.weight[0]),
        top_(shape.padding[0]),
        left_(shape.padding[1]),
        codes_(codes),
        kernels_(tiles.winograd),
        blocks_(vector_blocks(vectors_for(inputs_))),
        no_input_(static_cast<std::size_t>(inputs_), static_cast<std::uint8_t>(codes.biases.input)),
        no_error_(static_cast<std::size_t>(outputs_), static_cast<std::uint8_t>(codes.biases.error)),
        input_{.code = codes.input,
               .rows = shape.input[2],
               .cols = shape.input[3],
               .channels = inputs_,
               .outside = no_input_.data()},
        error_{.code = codes.error,
               .rows = grid_.rows,
               .cols = grid_.cols,
               .channels = outputs_,
               .outside = no_error_.data()} {}

  // Σ (q - bias)(qx - bias), [output channel][tap][input channel]. The input's images are added to `inputs`
  // while they are in a cache.
  void add_to(WideSums& total, TapSums& inputs) const {
    const std::int64_t tasks = (grid_.tiles() + kTiles - 1) / kTiles;
    const std::int64_t macs = grid_.tiles() * kTile * kTile * kTaps * inputs_ * outputs_;
    TaskQueues(tasks, grain_for(macs, tasks)).run([&](TaskQueues::Worker& worker) {
      thread_local Scratch<std::int32_t> memory;
      NarrowSums sums(
          memory.at_least(total.count()), total.count(), [&](const std::int32_t* mine) { total.add(mine); },
          kMostTiles);
      TapSums::Part input_sums(inputs);
      while (const std::optional<std::int64_t> task = worker.next_task()) {
        add_images(*task * kTiles, input_sums);
        add(*task * kTiles, sums.add(kTiles));
      }
    });
  }

 private:
  std::int64_t error_step() const { return point_step(kTilePairs * outputs_ * kPair); }
  static std::int64_t window_step(int vectors) { return point_step(kTilePairs * vectors * kPairVector); }

  // The sums over kTiles tiles.
  void add(std::int64_t first, std::int32_t* total) const {
    thread_local Scratch<std::int16_t> window_memory, error_memory;
    thread_local Scratch<std::int32_t> sum_memory;
    std::int16_t* windows = window_memory.at_least(vectors_for(inputs_) * kPoints * window_step(1));
    std::int16_t* errors = error_memory.at_least(kPoints * error_step());
    std::int32_t* sum = sum_memory.at_least(kPoints * sum_step(kOutputsAtOnce * kMostVectors * kLanes));
    const std::int64_t pairs = (std::min(kTiles, grid_.tiles() - first) + 1) / kPair;
    for (std::int64_t pair = 0; pair < pairs; ++pair) transform(first + kPair * pair, pair, windows, errors);
    for (const VectorBlock& block : blocks_) {
      for (std::int64_t o = 0; o < outputs_; o += kOutputsAtOnce) {
        const bool begins = block.first == 0 && o == 0;
        multiply(windows, errors + o * kPair, block, pairs, begins ? first + kTiles : grid_.tiles(), sum);
        restore(sum, block, total + o * kTaps * inputs_ + block.first * kLanes);
      }
      windows += kPoints * window_step(block.vectors);
    }
  }

  // The images whose first tile is among kTiles from `first` on: about to be read, and fetched.
  void add_images(std::int64_t first, TapSums::Part& inputs) const {
    const std::int64_t tiles = grid_.tile_rows * grid_.tile_cols;
    const std::int64_t end = std::min(grid_.items, (first + kTiles + tiles - 1) / tiles);
    for (std::int64_t item = (first + tiles - 1) / tiles; item < end; ++item) inputs.add_image(item);
  }

  // Both operands of two tiles: errors [point][pair of tiles][channel][2]; windows block after block, [point][pair of tiles]
  // [channel of the block][2].
  void transform(std::int64_t tile, std::int64_t pair, std::int16_t* windows, std::int16_t* errors) const {
    const std::uint8_t *window_at[kPair][kPoints], *error_at[kPair][kTile * kTile];
    for (int i = 0; i < kPair; ++i) locate(tile + i, window_at[i], error_at[i]);
    for (const VectorBlock& block : blocks_) {
      const std::int64_t pair_step = block.vectors * kPairVector;
      for (int v = 0; v < block.vectors; ++v) {
        kernels_.window_pair(window_at[0], window_at[1], (block.first + v) * kLanes,
                             static_cast<std::int16_t>(codes_.biases.input),
                             windows + pair * pair_step + v * kPairVector, window_step(block.vectors));
      }
      windows += kPoints * window_step(block.vectors);
    }
    for (std::int64_t o = 0; o < outputs_; o += kLanes) {
      kernels_.error_pair(error_at[0], error_at[1], o, static_cast<std::int16_t>(codes_.biases.error),
                          errors + (pair * outputs_ + o) * kPair, error_step());
    }
  }

  // Tiles [from, to), as if each had its part of an image's bytes to itself.
  LOWTIDE_FETCHES void fetch_tiles(const ImagePixels& images, std::int64_t from, std::int64_t to) const {
    const std::int64_t image = images.rows * images.cols * images.channels;
    const std::int64_t tiles = grid_.tile_rows * grid_.tile_cols;
    const std::int64_t first = image * from / tiles, last = image * to / tiles;
    fetch<Fetch::kToReadLater>(images.code + first, last - first);
  }

  void locate(std::int64_t tile, const std::uint8_t** window, const std::uint8_t** error) const {
    if (tile >= grid_.tiles()) {  // the second of the last pair, where their number is odd
      std::fill_n(window, kPoints, no_input_.data());
      std::fill_n(error, kTile * kTile, no_error_.data());
      return;
    }
    const std::int64_t col = tile % grid_.tile_cols * kTile,
                       row = tile / grid_.tile_cols % grid_.tile_rows * kTile;
    const std::int64_t item = tile / grid_.tile_cols / grid_.tile_rows;
    input_.locate(item, row - top_, col - left_, kWindow, window);
    error_.locate(item, row, col, kTile, error);
  }

  // sum[point][output][channel of the block]. Codes of the tiles from `next` on are fetched the while.
  void multiply(const std::int16_t* windows, const std::int16_t* errors, const VectorBlock& block,
                std::int64_t pairs, std::int64_t next, std::int32_t* sum) const {
    const std::int64_t last = std::min(grid_.tiles(), next + kTiles);
    for (std::int64_t point = 0; point < kPoints; ++point) {
      const std::int64_t from = next + (last - next) * point / kPoints;
      const std::int64_t to = next + (last - next) * (point + 1) / kPoints;
      fetch_tiles(input_, from, to);
      fetch_tiles(error_, from, to);
      kernels_.pair_rows({.input = errors + point * error_step(),
                          .row_step = kPair,
                          .pair_step = outputs_ * kPair,
                          .weight = windows + point * window_step(block.vectors),
                          .pairs = pairs,
                          .rows = kOutputsAtOnce,
                          .sum = sum + point * sum_step(kOutputsAtOnce * block.vectors * kLanes)},
                         block.vectors);
    }
  }

  void restore(const std::int32_t* sum, const VectorBlock& block, std::int32_t* total) const {
    const std::int64_t lanes = block.vectors * kLanes;
    for (std::int64_t o = 0; o < kOutputsAtOnce; ++o) {
      for (std::int64_t first = 0; first < lanes; first += kLanes) {
        kernels_.add_kernel_sums({sum + o * lanes + first, sum_step(kOutputsAtOnce * lanes)},
                                 total + o * kTaps * inputs_ + first, inputs_);
      }
    }
  }

  const TileGrid grid_;
  const std::int64_t inputs_, outputs_, top_, left_;
  const GradientCodes codes_;
  const WinogradKernels& kernels_;
  const std::vector<VectorBlock> blocks_;
  const std::vector<std::uint8_t> no_input_, no_error_;
  const ImagePixels input_, error_;
};

}  // namespace

at::Tensor winograd_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                                    const TileKernels& tiles) {
  at::Tensor dw = empty_weight_gradient(dy, shape);
  const GradientCodes codes{.input = x.code.data_ptr<std::uint8_t>(),
                            .error = dy.code.data_ptr<std::uint8_t>(),
                            .biases = {.error = Affine::of(dy).code_bias, .input = Affine::of(x).zero_point}};
  TapSums input_sums(x, shape, Covered::kInputs);
  WideSums sums(shape.weight[0] * kTaps * shape.weight[1]);
  WeightSums(shape, codes, tiles).add_to(sums, input_sums);
  const GradientSums edges(dy, x, shape, codes.biases, input_sums.by_tap());
  write_weight_gradient(shape, edges, 0,
                        StridedSums{.sum = sums.get(),
                                    .output_step = kTaps * shape.weight[1],
                                    .tap_step = shape.weight[1],
                                    .input_step = 1},
                        dw);
  return dw;
}

}  // namespace lowtide::integer
