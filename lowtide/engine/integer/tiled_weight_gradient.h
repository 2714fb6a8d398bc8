#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/engine/integer/winograd_weight_gradient.h"

namespace lowtide::integer {

struct TiledSums {
  std::vector<std::int64_t>
      products;  // Σ (q - shift)(qx - shift), [output channel][kernel position][input of the group]
  std::vector<std::int64_t> inputs;  // Σ qx, [kernel position][input channel]
};

// A weight gradient's sums by a matrix unit.
//
// What is summed are the positions of the output, row by row. The error becomes planes, one an output channel: rows of the
// left matrix. Lanes are a kernel row's columns and their channels, which lie beside each other where the input is packed as
// whole pixels: at the next position they begin a stride on. So one packed row of input, its positions in quads, serves every
// kernel row that reads it, and the quads of neighbouring rows follow each other as those of the planes do.
TiledSums tiled_weight_sums(const ConvShape& shape, const GradientCodes& codes, const TileKernels& tiles);

}  // namespace lowtide::integer
