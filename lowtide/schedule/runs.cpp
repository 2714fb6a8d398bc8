#include "lowtide/schedule/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lowtide/base/error.h"

namespace lowtide {

std::vector<BitRun> run_lengths(const Schedule& schedule, std::int64_t total_steps) {
  constexpr std::size_t kMostRuns = 1'000'000;
  std::vector<BitRun> runs;
  for (std::int64_t step = 0; step < total_steps;) {
    const std::int64_t end = std::min(schedule.same_until(step), total_steps);
    const Bits bits = schedule.at(step);
    std::vector<std::uint8_t> layers = schedule.layers_at(step);
    if (runs.empty() || runs.back().bits != bits || runs.back().layers != layers)
      runs.push_back({bits, 0, std::move(layers)});
    runs.back().count += end - step;
    step = end;
    if (runs.size() > kMostRuns) {
      throw UserError(
          fmt::format("the bits change more than {} times; expected fewer: choose fewer cycles", kMostRuns));
    }
  }
  return runs;
}

std::int64_t step_count(const std::vector<BitRun>& runs) {
  std::int64_t total = 0;
  for (const BitRun& run : runs) total += run.count;
  return total;
}

std::vector<BitRange> envelope(const std::vector<BitRun>& runs, int columns) {
  const std::int64_t total = step_count(runs);
  std::vector<BitRange> result;
  std::size_t run = 0;
  std::int64_t run_end = runs.empty() ? 0 : runs[0].count;
  // Whole steps per column and the rest, so that nothing overflows: the column's first step is
  // floor(x·total/columns).
  const auto first_step = [&](std::int64_t x) { return total / columns * x + total % columns * x / columns; };
  for (std::int64_t x = 0; x < columns && !runs.empty(); ++x) {
    while (run_end <= first_step(x)) run_end += runs[++run].count;
    const std::int64_t last = std::max(first_step(x + 1) - 1, first_step(x));
    BitRange range{width(runs[run].bits.forward), width(runs[run].bits.forward)};
    while (run_end <= last) {
      run_end += runs[++run].count;
      range.low = std::min(range.low, width(runs[run].bits.forward));
      range.high = std::max(range.high, width(runs[run].bits.forward));
    }
    result.push_back(range);
  }
  return result;
}

}  // namespace lowtide
