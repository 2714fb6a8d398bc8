#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/schedule/bits.h"
#include "lowtide/schedule/schedule.h"

namespace lowtide {

// Steps in a row at the same bits; with forward bits of each layer, where these are not the same.
struct BitRun {
  Bits bits;
  std::int64_t count = 0;
  std::vector<std::uint8_t> layers{};
  bool operator==(const BitRun&) const = default;
};

// In time that follows their number, not that of the steps. UserError for more than a machine should hold.
std::vector<BitRun> run_lengths(const Schedule& schedule, std::int64_t total_steps);

// The lowest and highest forward width within each of `columns` equal parts of the steps: what a picture so
// many columns wide can show. A part shorter than a step shows the step it lies in.
std::vector<BitRange> envelope(const std::vector<BitRun>& runs, int columns);

std::int64_t step_count(const std::vector<BitRun>& runs);

}  // namespace lowtide
