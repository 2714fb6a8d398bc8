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

// Transformed kernels as the loops read them: for each plane (there are several where a weight is wider than 16 bits
// allow) block after block, [point][pair of summed channels][vector of the block][16][2].
class WinogradWeights {
 public:
  WinogradWeights(std::int64_t plane_count, std::int64_t summed, std::int64_t lanes)
      : planes(plane_count),
        blocks(blocks_of(vectors_for(lanes))),
        pairs_(summed / kPair),
        vectors_(vectors_for(lanes)) {
    memory_.reserve(planes * vectors_ * vector_numbers());
  }

  std::int16_t* at(std::int64_t plane, const Block& block, std::int64_t point, std::int64_t pair) const {
    return memory_.get() + (plane * vectors_ + block.first) * vector_numbers() + point * point_step(block) +
           pair * block.vectors * kPairVector;
  }
  // From a point to the next.
  std::int64_t point_step(const Block& block) const {
    return integer::point_step(pairs_ * block.vectors * kPairVector);
  }

  const std::int64_t planes;
  const std::vector<Block> blocks;

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
                static_cast<std::uint8_t>(Affine::of(codes).zero)),
        source{codes.code.data_ptr<std::uint8_t>(), plan.source_rows, plan.source_cols, codes.code.size(1),
               outside.data()},
        centre(outside[0]),
        top(plan.top),
        left(plan.left),
        at_once(channels_at_once),
        grid{codes.code.size(0), plan.out_rows, plan.out_cols},
        out(result),
        watcher(told) {}
  WinogradCall(const WinogradCall&) = delete;
  WinogradCall& operator=(const WinogradCall&) = delete;

  const std::vector<std::uint8_t> outside;
  const ImagePixels source;
  const std::int16_t centre;     // taken off the source's codes: its zero
  const std::int64_t top, left;  // a tile's window begins so far before it
  const std::int64_t at_once;
  const TileGrid grid;  // of the result
  const at::Tensor out;
  ImageWatcher* const watcher;
};

// One row of an image's sums: of each plane [pixel][block.vectors · 16].
struct WinogradRow {
  Block block;
  const std::int32_t* sum = nullptr;
  std::int64_t plane_step = 0;
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
  struct Strips {
    std::int64_t first, count;
  };

  struct Buffers {
    std::int16_t* windows;  // [point][tile][channel]
    std::int32_t* product;  // [point][tile][lane of the block]
    std::int32_t* sum;      // [plane][strip][row][column][lane of the block]
    const float** beside;   // what will be looked at beside each strip's results, or null
  };

  std::int64_t item_of(std::int64_t strip) const { return strip / call_.grid.tile_rows; }
  std::int64_t row_of(std::int64_t strip) const { return strip % call_.grid.tile_rows * kTile; }
  std::int64_t row_sums(const Block& block) const {
    return call_.grid.tile_cols * kTile * block.vectors * kLanes;
  }

  void work(std::int64_t first, std::int64_t last) const {
    const TileGrid& grid = call_.grid;
    const auto images = rows_.images(first, last - first);
    const std::int64_t at_once = std::max<std::int64_t>(1, kWinogradTiles / grid.tile_cols);
    for (std::int64_t strip = first * grid.tile_rows; strip < last * grid.tile_rows; strip += at_once) {
      const Strips strips{strip, std::min(at_once, last * grid.tile_rows - strip)};
      const Buffers buffers = reserve(strips);
      for (std::int64_t i = 0; i < strips.count; ++i) {
        const float* image = call_.watcher ? call_.watcher->beside(item_of(strip + i)) : nullptr;
        buffers.beside[i] = image ? image + row_of(strip + i) * row_floats_ : nullptr;
      }
      transform(strips, buffers.windows);
      for (const Block& block : weights_.blocks) {
        multiply(strips, block, buffers);
        finish(strips, block, buffers.sum, images);
      }
      if (!call_.watcher) continue;
      for (std::int64_t done = strip; done < strip + strips.count; ++done) {
        if (done % grid.tile_rows == grid.tile_rows - 1) call_.watcher->image(item_of(done));
      }
    }
  }

  Buffers reserve(const Strips& strips) const {
    thread_local Scratch<std::int16_t> windows;
    thread_local Scratch<std::int32_t> product, sum;
    thread_local Scratch<const float*> beside;
    const std::int64_t tiles = strips.count * call_.grid.tile_cols, lanes = kMostVectors * kLanes;
    return {windows.at_least(kPoints * point_step(tiles * call_.source.channels)),
            product.at_least(kPoints * sum_step(tiles * lanes)),
            sum.at_least(weights_.planes * tiles * kTile * kTile * lanes), beside.at_least(strips.count)};
  }

  void transform(const Strips& strips, std::int16_t* windows) const {
    const std::uint8_t* pixels[kPoints];
    const std::int64_t channels = call_.source.channels, tiles = strips.count * call_.grid.tile_cols;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t strip = strips.first + tile / call_.grid.tile_cols;
      call_.source.locate(item_of(strip), row_of(strip) - call_.top,
                          tile % call_.grid.tile_cols * kTile - call_.left, kWindow, pixels);
      for (std::int64_t c = 0; c < channels; c += kPairVector) {
        kernels_.window(pixels, c, call_.centre, windows + tile * channels + c, point_step(tiles * channels));
      }
    }
  }

  void multiply(const Strips& strips, const Block& block, const Buffers& buffers) const {
    const std::int64_t channels = call_.source.channels, tiles = strips.count * call_.grid.tile_cols;
    const std::int64_t lanes = block.vectors * kLanes;
    for (std::int64_t plane = 0; plane < weights_.planes; ++plane) {
      std::int32_t* sum = buffers.sum + plane * tiles * kTile * kTile * lanes;
      for (std::int64_t first = 0; first < channels; first += call_.at_once) {
        const std::int64_t pairs = std::min(call_.at_once, channels - first) / kPair;
        for (std::int64_t point = 0; point < kPoints; ++point) {
          if (block.first == 0 && plane == 0 && first == 0) fetch_share(strips, buffers.beside, point);
          kernels_.pair_rows({buffers.windows + point * point_step(tiles * channels) + first, channels, kPair,
                              weights_.at(plane, block, point, first / kPair), pairs, tiles,
                              buffers.product + point * sum_step(tiles * lanes)},
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

  // A share of the memory that the results go to, and of what will be looked at beside them.
  LOWTIDE_FETCHES void fetch_share(const Strips& strips, const float* const* beside,
                                   std::int64_t point) const {
    constexpr std::int64_t kLine = 64 / sizeof(float);
    for (std::int64_t i = 0; i < strips.count; ++i) {
      const std::int64_t item = item_of(strips.first + i), row = row_of(strips.first + i);
      const std::int64_t rows = std::min<std::int64_t>(kTile, call_.grid.rows - row);
      const std::int64_t lines = (rows * row_floats_ + kLine - 1) / kLine;
      const std::int64_t first = lines * point / kPoints * kLine;
      const std::int64_t count = lines * (point + 1) / kPoints * kLine - first;
      fetch<Fetch::kToWrite>(out_ + (item * call_.grid.rows + row) * row_floats_ + first, count);
      if (beside[i]) fetch<Fetch::kToReadLater>(beside[i] + first, count);
    }
  }

  template <typename Images>
  void finish(const Strips& strips, const Block& block, const std::int32_t* sum, const Images& images) const {
    const std::int64_t tiles = strips.count * call_.grid.tile_cols;
    WinogradRow row{block, sum, tiles * kTile * kTile * block.vectors * kLanes, 0, 0};
    for (std::int64_t strip = strips.first; strip < strips.first + strips.count; ++strip) {
      row.item = item_of(strip);
      for (std::int64_t i = 0; i < kTile; ++i, row.sum += row_sums(block)) {
        row.row = row_of(strip) + i;
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
