#include "lowtide/recipe/recipe.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/schedule/cycles.h"

namespace lowtide {

bool chooses_best(const TrainingOptions& training) { return training.keep_best || training.patience > 0; }

ScheduleSpec schedule_of(const PrecisionOptions& p) {
  if (p.schedule.find(' ') != std::string::npos) return parse_schedule(p.schedule);
  ScheduleSpec named = parse_schedule(p.schedule);
  if (named.name == "fp32") return named;
  if (named.name == "static") {
    const auto highest = p.bits.find(':') == std::string::npos ? p.bits : p.bits.substr(p.bits.find(':') + 1);
    return parse_schedule(fmt::format("static {} grad={}", highest, p.grad_bits));
  }
  const CyclicSchedule* cyclic = find_cyclic(named.name);
  if (cyclic == nullptr) {
    throw UserError(fmt::format(
        "schedule '{}' needs its whole line, such as --schedule \"deficit 3:8 grad=8 steps=1000\"",
        p.schedule));
  }
  std::string line = fmt::format("{} {} n={} grad={}", named.name, p.bits, p.cycles, p.grad_bits);
  if (cyclic->profile == Profile::kExponential) line += fmt::format(" k={}", p.k);
  if (cyclic->profile == Profile::kRex) line += fmt::format(" c={}", p.c);
  return parse_schedule(line);
}

Bits evaluation_bits(const PrecisionOptions& precision) {
  if (precision.eval_bits >= 0) return {precision.eval_bits, precision.eval_bits};
  return schedule_of(precision).last();
}

}  // namespace lowtide
