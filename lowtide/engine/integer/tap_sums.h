#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/engine/engine.h"

namespace lowtide::integer {

// What a weight gradient's taps meet: the positions of the image that a tap falls onto, or the outputs at which it does.
enum class Met { kInputs, kOutputs };

// How many positions each tap meets in all images, [kernel position].
std::vector<std::int64_t> positions_met(const ConvShape& shape);

// Σ q over the positions that each tap meets, [kernel position][channel], in one pass over the codes of the input or of the
// error.
std::vector<std::int64_t> sums_met(const Quantized& q, const ConvShape& shape, Met met);

}  // namespace lowtide::integer
