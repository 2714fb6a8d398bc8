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
    cost += count * static_cast<Count>(step_cost(run.bits));
  }
  ScheduleSummary summary;
  summary.runs = runs;
  if (steps == 0) return summary;
  // Sums are exact; each figure is rounded once, at its division.
  const Count static_cost = steps * static_cast<Count>(step_cost(peak));
  summary.mean_bits = static_cast<double>(bits) / static_cast<double>(steps);
  summary.relative_cost = static_cast<double>(cost) / static_cast<double>(steps * kRelativeCostDenominator);
  summary.saving = 1.0 - static_cast<double>(cost) / static_cast<double>(static_cost);
  return summary;
}

ScheduleSummary summarise(const ScheduleSpec& spec, std::int64_t total_steps, const Rates& rates) {
  return summarise(run_lengths(*make_schedule(spec, total_steps, rates), total_steps), peak_bits(spec));
}

Bits peak_bits(const ScheduleSpec& spec) {
  Bits peak = spec.highest();
  for (const std::optional<Part>& part : {spec.delay, spec.tail}) {
    if (!part) continue;
    const bool occurs = part->percent ? *part->percent > 0 : part->steps > 0;
    const Bits bits = part_bits(*part, spec.highest());
    if (occurs && width(bits.forward) > width(peak.forward)) peak = bits;
  }
  return peak;
}

std::string closed_loop_note(const ScheduleSpec& spec) {
  return fmt::format(
      "{} decides while it trains; {}", spec.name,
      spec.looks()  ? "told as it plans to, with all layers alike: a run spends the whole budget"
      : spec.budget ? "told as it plans to, without its probes: a run spends the whole budget, probes "
                      "included"
                    : "told as if its bits never rose: the largest saving, a run's own is in its result");
}

double relative_cost(const BitOperations& count, Count macs) {
  if (macs == 0) return 0;  // a step of a graph's sample may have nothing to multiply
  return static_cast<double>(count.total()) / static_cast<double>(macs * kRelativeCostDenominator);
}

std::string static_line(Bits bits) {
  return is_fp32(bits) ? "fp32" : fmt::format("static {} grad={}", bits.forward, bits.backward);
}

}  // namespace lowtide
