#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/cost/bit_operations.h"
#include "lowtide/schedule/runs.h"

namespace lowtide {

// What a schedule will cost, known before any training.
struct ScheduleSummary {
  double mean_bits = 0.0;      // of the forward pass; fp32 counts as 32
  double relative_cost = 0.0;  // mean over the steps, relative to fp32
  double saving = 0.0;         // against a static schedule at its peak bits: a fraction
  std::vector<BitRun> runs;
};
ScheduleSummary summarise(const std::vector<BitRun>& runs, Bits peak);
ScheduleSummary summarise(const ScheduleSpec& spec, std::int64_t total_steps, const Rates& rates = {});

// The highest bits that occur, those of a delay and a tail included: what a saving is told against. Not always what the
// model is evaluated at: `delayed 500 at=8 static 5` ends at 5 bits.
Bits peak_bits(const ScheduleSpec& spec);
// What a summary of a closed loop is worth.
std::string closed_loop_note(const ScheduleSpec& spec);
// Bit operations relative to those of the same MACs in fp32.
double relative_cost(const BitOperations& count, Count macs);

// The schedule that has these bits throughout: "static 8 grad=8", "fp32".
std::string static_line(Bits bits);

}  // namespace lowtide
