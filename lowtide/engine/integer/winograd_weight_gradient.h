#pragma once

#include <cstdint>
#include <memory>

#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/gradient_sums.h"
#include "lowtide/engine/integer/tap_sums.h"
#include "lowtide/engine/integer/tiles.h"

namespace lowtide::integer {

// Both operands, channels last, and what is taken off their codes.
struct GradientCodes {
  const std::uint8_t* input = nullptr;
  const std::uint8_t* error = nullptr;
  Shifts shifts;
};

// Σ (q - shift)(qx - shift) by winograd.h, [output channel][kernel position][input channel]. The input's images are added to
// `inputs` while they are in a cache.
std::unique_ptr<std::int64_t[]> winograd_weight_sums(const ConvShape& shape, const GradientCodes& codes,
                                                     TapSums& inputs, const TileKernels& tiles);

}  // namespace lowtide::integer
