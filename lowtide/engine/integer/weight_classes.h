#pragma once

#include <cstdint>
#include <span>

#include "lowtide/base/kept_memory.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/plan.h"

namespace lowtide::integer {

// factor · Σ w over all output channels and the valid taps of an input gradient: [class][input channel, whole vectors of
// them]. `code` is [output channel][tap][input channel], a range of `rows` for each output channel.
KeptVector<float> weight_class_values(const Phase& phase, const std::uint8_t* code,
                                      std::span<const Affine> rows, std::int64_t inputs, double factor);

}  // namespace lowtide::integer
