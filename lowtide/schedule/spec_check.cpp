#include <fmt/format.h>

#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/schedule/budget.h"
#include "lowtide/schedule/cycles.h"
#include "lowtide/schedule/schedule.h"
#include "lowtide/schedule/spec.h"

namespace lowtide {
namespace {

constexpr double kMostBudget =
    1000;  // a tail in fp32 costs more than static, but no more than this many times

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
  expect(spec.grad.low == spec.grad.high || !spec.grad_line.empty(),
         fmt::format("grad={}:{} needs a schedule that moves; static has one number of gradient bits",
                     spec.grad.low, spec.grad.high));
  expect(!spec.delay || spec.delay->bits || spec.budget || !spec.grad_line.empty(),
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
      spec.grad.low == spec.grad.high || !spec.grad_line.empty(),
      fmt::format(
          "grad={}:{} needs a schedule that moves between two ends; a table has one number of gradient bits",
          spec.grad.low, spec.grad.high));
  expect(
      !spec.budget || spec.table.runs()[0].layers.empty(),
      "table: bits of layers cannot be shifted to a budget; expected runs without brackets, such as 8x100");
}

void check_part(const char* what, const Part& part) {
  expect(part.steps >= 0, fmt::format("a {} of {} steps; expected 0 or more", what, part.steps));
  expect(
      !part.percent || (*part.percent >= 0.0 && *part.percent < 100.0),
      fmt::format("a {} of {}%; expected at least 0% and less than 100%", what, part.percent.value_or(0.0)));
  if (part.bits && *part.bits != 0) check_range("bits", {*part.bits, *part.bits});
}

void check_budget(const ScheduleSpec& spec) {
  expect(!spec.follows_rates() || spec.budget,
         fmt::format("{} needs budget=SHARE, such as budget=0.63", spec.name));
  expect(!spec.budget || (*spec.budget > 0.0 && *spec.budget <= kMostBudget),
         fmt::format("budget={}; expected a share above 0, of what static {} costs",
                     spec.budget.value_or(0.0), spec.bits.high));
  expect(spec.name != "matched" || spec.grad.low == spec.grad.high || !spec.grad_line.empty(),
         fmt::format("grad={}:{} needs one of the ten; matched has one number of gradient bits, or a "
                     "schedule of them, grad=(LR {}:{} n=1)",
                     spec.grad.low, spec.grad.high, spec.grad.low, spec.grad.high));
  expect(std::isfinite(spec.alpha) && spec.alpha >= 0.0,
         fmt::format("alpha={}; expected 0 or more", spec.alpha));
}

// A quarter of the steps: two probes before the loop knows a price, and an interval to use it in.
constexpr std::int64_t kFewestIntervals = 4;

void check_loop(const ScheduleSpec& spec) {
  expect(spec.bits.low < spec.bits.high, fmt::format("{} moves bits, and {}:{} leaves it no choice",
                                                     spec.name, spec.bits.low, spec.bits.high));
  expect(spec.grad.low == spec.grad.high && spec.grad_line.empty(),
         fmt::format("{} has one number of gradient bits", spec.name));
  expect(spec.every >= 2, fmt::format("every={} steps; expected at least 2", spec.every));
}

void check_grad_line(const ScheduleSpec& spec) {
  const ScheduleSpec& line = spec.grad_line[0];
  expect(
      !line.is_closed_loop() && line.name != "matched" && line.name != "fp32",
      fmt::format(
          "grad=({} …): gradient bits have a schedule that is known beforehand and has no budget; expected "
          "one of the ten, static, deficit, window or table",
          line.name));
  expect(!line.tail && !line.delay,
         "grad=(…): a delay or tail is of the whole line; expected it outside the brackets");
  expect(spec.name != "progressive",
         "progressive has gradient bits that climb with it, not a schedule of their own");
  expect(spec.grad == line.bits, "grad: the range of bits must be that of its schedule");
  check(line);
  expect(
      line.name != "table" || line.table.runs()[0].layers.empty(),
      "grad=(table …): gradient bits are those of all layers; expected runs without brackets, such as 8x100");
}

std::int64_t part_steps(const std::optional<Part>& part, std::int64_t total_steps) {
  if (!part) return 0;
  if (!part->percent) return part->steps;
  return static_cast<std::int64_t>(std::floor(*part->percent / 100.0 * static_cast<double>(total_steps)));
}

}  // namespace

std::int64_t delay_steps(const ScheduleSpec& spec, std::int64_t total_steps) {
  return part_steps(spec.delay, total_steps);
}

std::int64_t tail_steps(const ScheduleSpec& spec, std::int64_t total_steps) {
  return part_steps(spec.tail, total_steps);
}

void check(const ScheduleSpec& spec) {
  check_range("bits", spec.bits);
  check_range("gradient bits", spec.grad);
  expect(!spec.delay || spec.name != "fp32", "delayed fp32 is fp32");
  expect(!spec.tail || spec.name != "fp32", "fp32 has no tail; expected fp32 alone");
  if (spec.delay) check_part("delay", *spec.delay);
  if (spec.tail) check_part("tail", *spec.tail);
  expect(!spec.tail || spec.name != "progressive",
         "progressive climbs when the loss says so, and has no tail; expected a schedule that is known "
         "beforehand");
  check_budget(spec);
  if (!spec.grad_line.empty()) check_grad_line(spec);
  if (const CyclicSchedule* cyclic = find_cyclic(spec.name)) {
    check_cyclic(spec, *cyclic);
  } else if (spec.name == "static") {
    check_static(spec);
  } else if (spec.name == "table") {
    check_table(spec);
  } else if (spec.name == "progressive") {
    check_progressive(spec);
  } else if (spec.decides_by_budget()) {
    check_loop(spec);
  } else if (spec.name == "deficit") {
    expect(spec.steps >= 0, fmt::format("deficit steps={}; expected 0 or more", spec.steps));
  } else if (spec.name == "window") {
    expect(spec.from >= 0 && spec.from <= spec.to,
           fmt::format("window from={} to={}; expected 0 <= from <= to", spec.from, spec.to));
  } else {
    expect(spec.name == "fp32" || spec.name == "matched", fmt::format("unknown schedule '{}'", spec.name));
  }
}

void check(const ScheduleSpec& spec, std::int64_t total_steps) {
  check(spec);
  expect(total_steps >= 1 && total_steps <= kMostSteps,
         fmt::format("a schedule of {} steps; expected 1 to {}", total_steps, kMostSteps));
  const std::int64_t delay = delay_steps(spec, total_steps);
  expect(delay < total_steps,
         fmt::format("a delay of {} steps leaves nothing of {} steps", delay, total_steps));
  const std::int64_t tail = tail_steps(spec, total_steps);
  expect(tail < total_steps - delay,
         fmt::format("a tail of {} steps leaves nothing of {} steps", tail, total_steps - delay));
  const std::int64_t steps = total_steps - delay - tail;
  const char* after = tail > 0 ? " before the tail" : delay > 0 ? " after the delay" : "";
  expect(!spec.budget || total_steps <= kMostBudgetSteps,
         fmt::format("a budget over {} steps; expected at most {}", total_steps, kMostBudgetSteps));
  if (!spec.grad_line.empty()) check(spec.grad_line[0], steps);
  if (find_cyclic(spec.name) != nullptr) {
    expect(spec.cycles <= steps, fmt::format("n={} cycles in {} steps{}: a cycle needs a step at least",
                                             spec.cycles, steps, after));
  } else if (spec.name == "table") {
    expect(spec.table.steps() == steps,
           fmt::format("the table has {} steps, but the run has {}{}; expected as many", spec.table.steps(),
                       steps, after));
  } else if (spec.decides_by_budget()) {
    expect(spec.every <= steps / kFewestIntervals,
           fmt::format("every={} of {} steps{} leaves too few decisions; expected at most {}", spec.every,
                       steps, after, steps / kFewestIntervals));
  } else if (spec.name == "deficit") {
    expect(spec.steps <= steps,
           fmt::format("a deficit of {} steps is longer than the {} steps{}", spec.steps, steps, after));
  } else if (spec.name == "window") {
    expect(spec.to <= steps,
           fmt::format("a window to step {} ends beyond the {} steps{}", spec.to, steps, after));
  }
}

}  // namespace lowtide
