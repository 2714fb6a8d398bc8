#include <fmt/format.h>

#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/schedule/cycles.h"
#include "lowtide/schedule/schedule.h"
#include "lowtide/schedule/spec.h"

namespace lowtide {
namespace {

void expect(bool condition, const std::string& otherwise) {
  if (!condition) throw UserError(otherwise);
}

void check_range(const char* what, BitRange range) {
  for (const int bits : {range.low, range.high}) {
    expect(bits >= kFewestBits && bits <= kMostBits,
           fmt::format("{} of {} are outside {} to {}", what, bits, kFewestBits, kMostBits));
  }
  expect(range.low <= range.high, fmt::format("{} {}:{} are the wrong way round; expected {}:{}", what,
                                              range.low, range.high, range.high, range.low));
}

void check_cyclic(const ScheduleSpec& spec, const CyclicSchedule& cyclic) {
  expect(spec.cycles >= 1, fmt::format("n={} cycles; expected at least 1", spec.cycles));
  expect(
      cyclic.shape == Shape::kRepeated || spec.cycles % 2 == 0,
      fmt::format("{} is triangular and needs an even number of cycles to end at its highest bits, not n={}",
                  spec.name, spec.cycles));
  expect(std::isfinite(spec.k) && spec.k > 0.0, fmt::format("k={}; expected a number above 0", spec.k));
  expect(spec.c >= 0.0 && spec.c < 1.0, fmt::format("c={}; expected at least 0 and less than 1", spec.c));
}

void check_static(const ScheduleSpec& spec) {
  expect(spec.bits.low == spec.bits.high,
         fmt::format("static has one number of bits, not {}:{}", spec.bits.low, spec.bits.high));
  expect(spec.grad.low == spec.grad.high,
         fmt::format("grad={}:{} needs a schedule that moves; static has one number of gradient bits",
                     spec.grad.low, spec.grad.high));
  expect(!spec.delay || spec.delay->bits,
         "a delayed static would run at the same bits throughout; name the first part's, such as delayed 500 "
         "at=fp32 static 4");
}

void check_progressive(const ScheduleSpec& spec) {
  expect(spec.levels.size() >= 2, "progressive needs a list of bits such as 3,4,6,8");
  for (std::size_t i = 0; i < spec.levels.size(); ++i) {
    check_range("bits", {spec.levels[i], spec.levels[i]});
    expect(i == 0 || spec.levels[i - 1] < spec.levels[i],
           fmt::format("progressive bits must rise, but {} follows {}", spec.levels[i],
                       spec.levels[i == 0 ? 0 : i - 1]));
  }
  expect(spec.bits.low == spec.levels.front() && spec.bits.high == spec.levels.back(),
         "progressive: the range of bits must be the ends of the list");
  const Plateau& plateau = spec.plateau;
  expect(plateau.window >= 1, fmt::format("window={} losses; expected at least 1", plateau.window));
  expect(plateau.patience >= 1, fmt::format("patience={}; expected at least 1", plateau.patience));
  expect(plateau.threshold >= 0.0 && plateau.threshold < 1.0,
         fmt::format("threshold={}; expected at least 0 and less than 1", plateau.threshold));
}

void check_table(const ScheduleSpec& spec) {
  expect(!spec.table.runs().empty(), "table needs runs of bits such as 8x100 5x1500, or @FILE");
  expect(spec.bits == spec.table.bits(), "table: the range of bits must be that of its runs");
  expect(
      spec.grad.low == spec.grad.high,
      fmt::format(
          "grad={}:{} needs a schedule that moves between two ends; a table has one number of gradient bits",
          spec.grad.low, spec.grad.high));
}

void check_delay(const ScheduleSpec& spec) {
  const Delay& delay = *spec.delay;
  expect(spec.name != "fp32", "delayed fp32 is fp32");
  expect(delay.steps >= 0, fmt::format("a delay of {} steps; expected 0 or more", delay.steps));
  expect(!delay.percent || (*delay.percent >= 0.0 && *delay.percent < 100.0),
         fmt::format("a delay of {}%; expected at least 0% and less than 100%", delay.percent.value_or(0.0)));
  if (delay.bits && *delay.bits != 0) check_range("bits", {*delay.bits, *delay.bits});
}

}  // namespace

std::int64_t delay_steps(const ScheduleSpec& spec, std::int64_t total_steps) {
  if (!spec.delay) return 0;
  if (!spec.delay->percent) return spec.delay->steps;
  return static_cast<std::int64_t>(
      std::floor(*spec.delay->percent / 100.0 * static_cast<double>(total_steps)));
}

void check(const ScheduleSpec& spec) {
  check_range("bits", spec.bits);
  check_range("gradient bits", spec.grad);
  if (spec.delay) check_delay(spec);
  if (const CyclicSchedule* cyclic = find_cyclic(spec.name)) {
    check_cyclic(spec, *cyclic);
  } else if (spec.name == "static") {
    check_static(spec);
  } else if (spec.name == "table") {
    check_table(spec);
  } else if (spec.name == "progressive") {
    check_progressive(spec);
  } else if (spec.name == "deficit") {
    expect(spec.steps >= 0, fmt::format("deficit steps={}; expected 0 or more", spec.steps));
  } else if (spec.name == "window") {
    expect(spec.from >= 0 && spec.from <= spec.to,
           fmt::format("window from={} to={}; expected 0 <= from <= to", spec.from, spec.to));
  } else {
    expect(spec.name == "fp32", fmt::format("unknown schedule '{}'", spec.name));
  }
}

void check(const ScheduleSpec& spec, std::int64_t total_steps) {
  check(spec);
  expect(total_steps >= 1 && total_steps <= kMostSteps,
         fmt::format("a schedule of {} steps; expected 1 to {}", total_steps, kMostSteps));
  const std::int64_t delay = delay_steps(spec, total_steps);
  expect(delay < total_steps,
         fmt::format("a delay of {} steps leaves nothing of {} steps", delay, total_steps));
  const std::int64_t steps = total_steps - delay;
  const char* after = delay > 0 ? " after the delay" : "";
  if (find_cyclic(spec.name) != nullptr) {
    expect(spec.cycles <= steps, fmt::format("n={} cycles in {} steps{}: a cycle needs a step at least",
                                             spec.cycles, steps, after));
  } else if (spec.name == "table") {
    expect(spec.table.steps() == steps,
           fmt::format("the table has {} steps, but the run has {}{}; expected as many", spec.table.steps(),
                       steps, after));
  } else if (spec.name == "deficit") {
    expect(spec.steps <= steps,
           fmt::format("a deficit of {} steps is longer than the {} steps{}", spec.steps, steps, after));
  } else if (spec.name == "window") {
    expect(spec.to <= steps,
           fmt::format("a window to step {} ends beyond the {} steps{}", spec.to, steps, after));
  }
}

}  // namespace lowtide
