#include "lowtide/cost/summary.h"

#include <fmt/format.h>

namespace lowtide {

ScheduleSummary summarise(const std::vector<BitRun>& runs, Bits peak) {
  Count steps = 0;
  Count bits = 0;
  Count cost = 0;
  for (const BitRun& run : runs) {
    const auto count = static_cast<Count>(run.count);
    steps += count;
    bits += count * static_cast<Count>(width(run.bits.forward));
    cost += count * static_cast<Count>(relative_cost_numerator(run.bits));
  }
  ScheduleSummary summary;
  summary.runs = runs;
  if (steps == 0) return summary;
  // Sums are exact; each figure is rounded once, at its division.
  const Count static_cost = steps * static_cast<Count>(relative_cost_numerator(peak));
  summary.mean_bits = static_cast<double>(bits) / static_cast<double>(steps);
  summary.relative_cost = static_cast<double>(cost) / static_cast<double>(steps * kRelativeCostDenominator);
  summary.saving = 1.0 - static_cast<double>(cost) / static_cast<double>(static_cost);
  return summary;
}

ScheduleSummary summarise(const ScheduleSpec& spec, std::int64_t total_steps) {
  return summarise(run_lengths(*make_schedule(spec, total_steps), total_steps), peak_bits(spec));
}

Bits peak_bits(const ScheduleSpec& spec) {
  const Bits highest = spec.highest();
  if (!spec.delay || !spec.delay->bits) return highest;
  const Delay& delay = *spec.delay;
  const bool occurs = delay.percent ? *delay.percent > 0 : delay.steps > 0;
  if (!occurs || width(*delay.bits) <= width(highest.forward)) return highest;
  return *delay.bits == 0 ? Bits{} : Bits{*delay.bits, highest.backward};
}

double relative_cost(const BitOperations& count, Count macs) {
  return static_cast<double>(count.total()) / static_cast<double>(macs * kRelativeCostDenominator);
}

std::string static_line(Bits bits) {
  return is_fp32(bits) ? "fp32" : fmt::format("static {} grad={}", bits.forward, bits.backward);
}

}  // namespace lowtide
