#include "lowtide/engine/integer/winograd.h"

#include <algorithm>

#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/tiles.h"

namespace lowtide::integer {

bool suits_winograd(const ConvShape& shape, const WinogradWorth& worth) {
  const std::int64_t outputs = shape.weight[0], inputs = shape.weight[1];
  const bool kernel = shape.weight[2] == 3 && shape.weight[3] == 3 && shape.groups == 1 &&
                      shape.stride[0] == 1 && shape.stride[1] == 1 && shape.padding[0] <= 2 &&
                      shape.padding[1] <= 2;
  if (!kernel || shape.input[0] < worth.images || inputs % worth.channels != 0 ||
      outputs % worth.channels != 0)
    return false;
  const TileGrid grid{shape.input[0], shape.output_height(), shape.output_width()};
  // Images of 7×7 pixels, three quarters of their four tiles, are still worth it.
  const std::int64_t pixels = grid.items * grid.rows * grid.cols;
  const bool used = 4 * pixels >= 3 * grid.tiles() * kTile * kTile;
  return used && grid.tiles() >= worth.tiles_per_channel * std::max(inputs, outputs);
}

}  // namespace lowtide::integer
