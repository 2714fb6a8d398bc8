#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "lowtide/engine/integer/winograd_weight_gradient.h"

// A weight gradient's sums by a matrix unit.
//
// What is summed are the positions of the output, row by row. The error becomes planes, one an output channel: rows of the
// left matrix. Lanes are a kernel row's columns and their channels, which lie beside each other where the input is packed as
// whole pixels: at the next position they begin a stride on. So one packed row of input, its positions in quads, serves every
// kernel row that reads it, and the quads of neighbouring rows follow each other as those of the planes do.

namespace lowtide::integer {

// Sums lie in tiles, [group][block of sixteen outputs][kernel row][vector of lanes][16 outputs][16 lanes].
struct LaneTiles {
  explicit LaneTiles(const ConvShape& shape);

  std::int64_t groups, inputs, outputs;  // the last two of a group
  std::int64_t kernel_rows, kernel_cols;
  std::int64_t pixel;    // bytes of a packed pixel: a channel each, to whole quads
  std::int64_t vectors;  // of a kernel row's lanes
  std::int64_t blocks;   // of a group's outputs

  std::int64_t streams() const { return kernel_rows * vectors; }
  std::int64_t group_lanes() const { return streams() * kLanes; }
  std::int64_t group_sums() const { return blocks * streams() * kLanes * kLanes; }
};

struct TiledSums {
  LaneTiles tiles;
  std::unique_ptr<std::int64_t[]> products;  // Σ (q - shift)(qx - shift)
  std::vector<std::int64_t> lanes;           // Σ (qx - shift), [group][kernel row][vector][16]

  // One group's products.
  struct Group {
    const LaneTiles& tiles;
    const std::int64_t* sum;

    // Calls take(first, count, sum, step) for the input channels that share a tile.
    template <typename Take>
    void stretches(std::int64_t output, std::int64_t place, std::int64_t inputs, const Take& take) const {
      const std::int64_t row = place / tiles.kernel_cols, first = place % tiles.kernel_cols * tiles.pixel;
      const std::int64_t stream = output / kLanes * tiles.streams() + row * tiles.vectors;
      for (std::int64_t c = 0, count = 0; c < inputs; c += count) {
        const std::int64_t vector = (first + c) / kLanes, lane = (first + c) % kLanes;
        count = std::min(kLanes - lane, inputs - c);
        take(c, count, sum + ((stream + vector) * kLanes + output % kLanes) * kLanes + lane, 1);
      }
    }
  };
  Group of(std::int64_t group) const { return {tiles, products.get() + group * tiles.group_sums()}; }

  // Σ qx over the positions that each tap meets, [kernel position][input channel].
  std::vector<std::int64_t> input_sums(const ConvShape& shape, std::int32_t shift) const;
};

TiledSums tiled_weight_sums(const ConvShape& shape, const GradientCodes& codes, const TileKernels& tiles);

}  // namespace lowtide::integer
