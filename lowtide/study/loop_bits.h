#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lowtide/schedule/table.h"
#include "lowtide/train/run_folder.h"

// The bits that a closed loop chose, as a schedule that chooses nothing: is its feedback needed, or only the shape that it
// found, or only its bits in any order?

namespace lowtide {

// What a run had in each of its `steps` steps, as its lines tell; with bits of layers, whose order is that of the ledger in
// its last checkpoint, where lines tell of layers. UserError where they do not tell all steps.
BitTable logged_bits(const RunPaths& run, std::int64_t steps);

// The same bits, each in as many steps, in an order that the seed draws: of steps; where that would make a table longer than a
// recipe can be, of a few steps together. Bits of layers stay with those of the other layers.
BitTable shuffled(const BitTable& bits, std::uint64_t seed);

}  // namespace lowtide
