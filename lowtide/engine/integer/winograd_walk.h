#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "lowtide/base/fetch.h"
#include "lowtide/base/parallel.h"
#include "lowtide/engine/cpu/image_watcher.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/direct_walk.h"
#include "lowtide/engine/integer/tuning.h"
#include "lowtide/engine/integer/winograd.h"

// The walk that a convolution's output and its input gradient have in common where winograd.h is used: transform some rows
// of tiles, multiply, transform back, and hand the integer sums row by row to whoever makes floats of them.

namespace lowtide::integer {

// Transformed kernels as the loops read them: for each limb (there are several where a weight is wider than 16 bits
// allow) block after block, [point][pair of summed channels][vector of the block][16][2].
class WinogradWeights {
 public:
  WinogradWeights(std::int64_t limb_count, std::int64_t summed, std::int64_t lanes)
      : limbs(limb_count),
        blocks(vector_blocks(vectors_for(lanes))),
        pairs_(summed / kPair),
        vectors_(vectors_for(lanes)) {
    memory_.reserve(limbs * vectors_ * vector_numbers());
  }

  std::int16_t* at(std::int64_t limb, const VectorBlock& block, std::int64_t point, std::int64_t pair) const {
    return memory_.get() + (limb * vectors_ + block.first) * vector_numbers() + point * point_step(block) +
           pair * block.vectors * kPairVector;
  }
  // From a point to the next.
  std::int64_t point_step(const VectorBlock& block) const {
    return integer::point_step(pairs_ * block.vectors * kPairVector);
  }

  const std::int64_t limbs;
  const std::vector<VectorBlock> blocks;

 private:
  std::int64_t vector_numbers() const { return kPoints * integer::point_step(pairs_ * kPairVector); }

  std::int64_t pairs_, vectors_;
  Scratch<std::int16_t> memory_;
};

struct WinogradCall {
  // `channels_at_once`: summed channels whose sums are sure to stay within kWinogradLimit; even.
  WinogradCall(const Plan& plan, const Quantized& codes, std::int64_t channels_at_once,
               const at::Tensor& result, ImageWatcher* told)
      : outside(static_cast<std::size_t>(codes.code.size(1)),
                static_cast<std::uint8_t>(Affine::of(codes).zero_point)),
        source{.code = codes.code.data_ptr<std::uint8_t>(),
               .rows = plan.source_rows,
               .cols = plan.source_cols,
               .channels = codes.code.size(1),
               .outside = outside.data()},
        centre(outside[0]),
        top(plan.top),
        left(plan.left),
        at_once(channels_at_once),
        grid{.items = codes.code.size(0), .rows = plan.out_rows, .cols = plan.out_cols},
        out(result),
        watcher(told) {}
  WinogradCall(const WinogradCall&) = delete;
  WinogradCall& operator=(const WinogradCall&) = delete;

  const std::vector<std::uint8_t> outside;
  const ImagePixels source;
  const std::int16_t centre;     // subtracted from the source's codes: its zero point
  const std::int64_t top, left;  // a tile's window begins so far before it
  const std::int64_t at_once;
  const TileGrid grid;  // of the result
  const at::Tensor out;
  ImageWatcher* const watcher;
};

// One row of an image's sums: of each limb [pixel][block.vectors · 16].
struct WinogradRow {
  VectorBlock block;
  const std::int32_t* sum = nullptr;
  std::int64_t limb_step = 0;
  std::int64_t item = 0, row = 0;
};

// Rows has: Images images(first, count) const, once for every few images by the thread that works on them;
//           Images::finish(const WinogradRow&) const.
template <typename Rows>
class WinogradWalk {
 public:
  WinogradWalk(const WinogradCall& call, const WinogradWeights& weights, const Rows& rows,
               const TileKernels& tiles)
      : call_(call),
        weights_(weights),
        rows_(rows),
        kernels_(tiles.winograd),
        out_(call.out.data_ptr<float>()),
        row_floats_(call.grid.cols * call.out.size(1)) {}

  void run() const {
    const TileGrid& grid = call_.grid;
    const std::int64_t images = std::max<std::int64_t>(1, kWinogradTiles / (grid.tile_rows * grid.tile_cols));
    if (call_.watcher) call_.watcher->begin(call_.out);
    parallel_for((grid.items + images - 1) / images, 1,
                 [&](std::int64_t task) { work(task * images, std::min(grid.items, (task + 1) * images)); });
  }

 private:
  // Rows of tiles, counted through all images.
  struct Band {
    std::int64_t first, count;
  };

  struct Buffers {
    std::int16_t* windows;  // [point][tile][channel]
    std::int32_t* product;  // [point][tile][lane of the block]
    std::int32_t* sum;      // [limb][tile_row][row][column][lane of the block]
    const float** hint;     // what will be read with each tile row's results, or null
  };

  std::int64_t item_of(std::int64_t tile_row) const { return tile_row / call_.grid.tile_rows; }
  std::int64_t row_of(std::int64_t tile_row) const { return tile_row % call_.grid.tile_rows * kTile; }
  std::int64_t row_sums(const VectorBlock& block) const {
    return call_.grid.tile_cols * kTile * block.vectors * kLanes;
  }

  void work(std::int64_t first, std::int64_t last) const {
    const TileGrid& grid = call_.grid;
    const auto images = rows_.images(first, last - first);
    const std::int64_t at_once = std::max<std::int64_t>(1, kWinogradTiles / grid.tile_cols);
    for (std::int64_t tile_row = first * grid.tile_rows; tile_row < last * grid.tile_rows;
         tile_row += at_once) {
      const Band band{tile_row, std::min(at_once, last * grid.tile_rows - tile_row)};
      const Buffers buffers = reserve(band);
      for (std::int64_t i = 0; i < band.count; ++i) {
        const float* image = call_.watcher ? call_.watcher->prefetch_hint(item_of(tile_row + i)) : nullptr;
        buffers.hint[i] = image ? image + row_of(tile_row + i) * row_floats_ : nullptr;
      }
      transform(band, buffers.windows);
      for (const VectorBlock& block : weights_.blocks) {
        multiply(band, block, buffers);
        finish(band, block, buffers.sum, images);
      }
      if (!call_.watcher) continue;
      for (std::int64_t done = tile_row; done < tile_row + band.count; ++done) {
        if (done % grid.tile_rows == grid.tile_rows - 1) call_.watcher->image(item_of(done));
      }
    }
  }

  Buffers reserve(const Band& band) const {
    thread_local Scratch<std::int16_t> windows;
    thread_local Scratch<std::int32_t> product, sum;
    thread_local Scratch<const float*> hint;
    const std::int64_t tiles = band.count * call_.grid.tile_cols, lanes = kMostVectors * kLanes;
    return {.windows = windows.at_least(kPoints * point_step(tiles * call_.source.channels)),
            .product = product.at_least(kPoints * sum_step(tiles * lanes)),
            .sum = sum.at_least(weights_.limbs * tiles * kTile * kTile * lanes),
            .hint = hint.at_least(band.count)};
  }

  void transform(const Band& band, std::int16_t* windows) const {
    const std::uint8_t* pixels[kPoints];
    const std::int64_t channels = call_.source.channels, tiles = band.count * call_.grid.tile_cols;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t tile_row = band.first + tile / call_.grid.tile_cols;
      call_.source.locate(item_of(tile_row), row_of(tile_row) - call_.top,
                          tile % call_.grid.tile_cols * kTile - call_.left, kWindow, pixels);
      for (std::int64_t c = 0; c < channels; c += kPairVector) {
        kernels_.window(pixels, c, call_.centre, windows + tile * channels + c, point_step(tiles * channels));
      }
    }
  }

  void multiply(const Band& band, const VectorBlock& block, const Buffers& buffers) const {
    const std::int64_t channels = call_.source.channels, tiles = band.count * call_.grid.tile_cols;
    const std::int64_t lanes = block.vectors * kLanes;
    for (std::int64_t limb = 0; limb < weights_.limbs; ++limb) {
      std::int32_t* sum = buffers.sum + limb * tiles * kTile * kTile * lanes;
      for (std::int64_t first = 0; first < channels; first += call_.at_once) {
        const std::int64_t pairs = std::min(call_.at_once, channels - first) / kPair;
        for (std::int64_t point = 0; point < kPoints; ++point) {
          if (block.first == 0 && limb == 0 && first == 0) fetch_part(band, buffers.hint, point);
          kernels_.pair_rows({.input = buffers.windows + point * point_step(tiles * channels) + first,
                              .row_step = channels,
                              .pair_step = kPair,
                              .weight = weights_.at(limb, block, point, first / kPair),
                              .pairs = pairs,
                              .rows = tiles,
                              .sum = buffers.product + point * sum_step(tiles * lanes)},
                             block.vectors);
        }
        restore(tiles, lanes, first > 0, buffers.product, sum);
      }
    }
  }

  void restore(std::int64_t tiles, std::int64_t lanes, bool adds, const std::int32_t* product,
               std::int32_t* sum) const {
    const std::int64_t cols = call_.grid.tile_cols, row_step = cols * kTile * lanes;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      std::int32_t* to = sum + (tile / cols * kTile * cols + tile % cols) * kTile * lanes;
      for (std::int64_t lane = 0; lane < lanes; lane += kLanes) {
        kernels_.tile_sums({product + tile * lanes + lane, sum_step(tiles * lanes)}, adds, to + lane,
                           row_step, lanes);
      }
    }
  }

  // A part of the memory that the results go to, and of what will be read with them.
  LOWTIDE_FETCHES void fetch_part(const Band& band, const float* const* hint, std::int64_t point) const {
    constexpr std::int64_t kLine = 64 / sizeof(float);
    for (std::int64_t i = 0; i < band.count; ++i) {
      const std::int64_t item = item_of(band.first + i), row = row_of(band.first + i);
      const std::int64_t rows = std::min<std::int64_t>(kTile, call_.grid.rows - row);
      const std::int64_t lines = (rows * row_floats_ + kLine - 1) / kLine;
      const std::int64_t first = lines * point / kPoints * kLine;
      const std::int64_t count = lines * (point + 1) / kPoints * kLine - first;
      fetch<Fetch::kToWrite>(out_ + (item * call_.grid.rows + row) * row_floats_ + first, count);
      if (hint[i]) fetch<Fetch::kToReadLater>(hint[i] + first, count);
    }
  }

  template <typename Images>
  void finish(const Band& band, const VectorBlock& block, const std::int32_t* sum,
              const Images& images) const {
    const std::int64_t tiles = band.count * call_.grid.tile_cols;
    WinogradRow row{.block = block, .sum = sum, .limb_step = tiles * kTile * kTile * block.vectors * kLanes};
    for (std::int64_t tile_row = band.first; tile_row < band.first + band.count; ++tile_row) {
      row.item = item_of(tile_row);
      for (std::int64_t i = 0; i < kTile; ++i, row.sum += row_sums(block)) {
        row.row = row_of(tile_row) + i;
        if (row.row < call_.grid.rows) images.finish(row);
      }
    }
  }

  const WinogradCall& call_;
  const WinogradWeights& weights_;
  const Rows& rows_;
  const WinogradKernels& kernels_;
  const float* const out_;
  const std::int64_t row_floats_;  // of the result
};

// Summed channels in equal parts, each with sums of at most `most` channels; even.
inline std::int64_t channels_at_once(std::int64_t channels, std::int64_t most) {
  const std::int64_t parts = (channels + most - 1) / most, part = (channels + parts - 1) / parts;
  return (part + 1) / kPair * kPair;
}

}  // namespace lowtide::integer
