#include "lowtide/engine/integer/winograd.h"

#include <algorithm>

#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/tiles.h"

namespace lowtide::integer {

bool suits_winograd(const ConvShape& shape, std::int64_t whole_channels) {
  const std::int64_t outputs = shape.weight[0], inputs = shape.weight[1];
  const bool kernel = shape.weight[2] == 3 && shape.weight[3] == 3 && shape.groups == 1 &&
                      shape.stride[0] == 1 && shape.stride[1] == 1 && shape.padding[0] <= 2 &&
                      shape.padding[1] <= 2;
  const bool whole = inputs % whole_channels == 0 && outputs % whole_channels == 0;
  if (!kernel || !whole) return false;
  const TileGrid grid{shape.input[0], shape.output_height(), shape.output_width()};
  const std::int64_t pixels = grid.items * grid.rows * grid.cols;
  const bool used = 5 * pixels >= 4 * grid.tiles() * kTile * kTile - grid.tiles() * kTile;
  return used && grid.tiles() >= 4 * std::max(inputs, outputs);
}

}  // namespace lowtide::integer
