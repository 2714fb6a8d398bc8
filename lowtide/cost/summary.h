#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/schedule/runs.h"

namespace lowtide {

// What a schedule will cost, known before any training.
struct ScheduleSummary {
  double mean_bits = 0.0;      // of the forward pass; fp32 counts as 32
  double relative_cost = 0.0;  // mean over the steps, relative to fp32
  double saving = 0.0;  // against a static schedule at its highest bits: a fraction, negative if dearer
  std::vector<BitRun> runs;
};
ScheduleSummary summarise(const std::vector<BitRun>& runs, Bits highest);
ScheduleSummary summarise(const ScheduleSpec& spec, std::int64_t total_steps);

}  // namespace lowtide
