#include "lowtide/study/equal_cost.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/schedule/cycles.h"
#include "lowtide/schedule/text.h"
#include "lowtide/train/learning_rate.h"

namespace lowtide {
namespace {

constexpr double kAnyBudget = 0.5;       // of a line that is only read
constexpr double kWaterfillAlpha = 0.5;  // tuned on Fashion-MNIST: docs/results/fashion-mnist-tuning.md
constexpr const char* kThen = " then ";  // of a way's name, between the bits of its phases

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const CyclicSchedule& cyclic : cyclic_schedules()) names.emplace_back(cyclic.name);
  names.emplace_back(ways::kMatched);
  names.insert(names.end(), loops().begin(), loops().end());
  names.insert(names.end(), {ways::kConstant, ways::kShorter, ways::kPhases});
  return names;
}

std::string canonical(std::string_view text) {
  const std::vector<std::string> names = all_names();
  for (const std::string& name : names) {
    if (equal_ignoring_case(text, name)) return name;
  }
  throw UserError(fmt::format("schedules has {}{}; expected all, or of {}; or whole lines",
                              lowtide::quoted(text), did_you_mean(text, {names.begin(), names.end()}),
                              fmt::join(names, ", ")));
}

// A line with the budget among its parameters, which end where a tail begins.
std::string with_budget(const std::string& line, double budget) {
  std::vector<std::string_view> words = split_words(line);
  const std::string parameter = fmt::format("budget={}", budget);
  const auto tail = std::find_if(words.begin(), words.end(),
                                 [](std::string_view word) { return equal_ignoring_case(word, "then"); });
  words.insert(tail, parameter);
  return to_string(parse_schedule(fmt::format("{}", fmt::join(words, " "))));
}

// A line without a budget, but that can have one.
std::string canonical_line(const std::string& text) {
  with_budget(text, kAnyBudget);
  return fmt::format("{}", fmt::join(split_words(text), " "));
}

// Lowest and highest forward bits, and gradient bits, with their checks.
ScheduleSpec range_of(PrecisionOptions precision) {
  precision.schedule = "CR";
  precision.cycles = 1;
  return schedule_of(precision);
}

// The whole of training in less steps: what is counted in steps shrinks alike.
TrainingOptions shortened(TrainingOptions training, double budget) {
  const auto shrink = [&](std::int64_t& steps) {
    if (steps > 0) steps = std::max(std::llround(budget * static_cast<double>(steps)), 1LL);
  };
  // 0.63 · 2000 is a whole number, which floating point may miss by its last bit.
  training.steps =
      static_cast<std::int64_t>(std::floor(budget * static_cast<double>(training.steps) * (1 + 1e-12)));
  shrink(training.warmup);
  shrink(training.lr_delay);
  shrink(training.plateau_every);  // 0, an epoch, stays one
  for (double& at : training.lr_steps) {
    if (at > 1) at = std::max(2.0, std::round(budget * at));  // up to 1 it is a share of the steps
  }
  return training;
}

// The steps at the low bits after which the rest, at the highest, has spent the budget; none where the low bits alone cost
// more.
std::optional<std::int64_t> first_phase(const ScheduleSpec& range, int low, std::int64_t steps,
                                        double budget) {
  const auto high_cost = static_cast<double>(step_cost(range.highest()));
  const auto low_cost = static_cast<double>(step_cost({low, range.grad.high}));
  const double share = (1 - budget) * high_cost / (high_cost - low_cost);
  const auto phase = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(steps) * (1 - 1e-12)));
  return phase < steps ? std::optional(phase) : std::nullopt;
}

// Twenty decisions. A probe takes some two thirds of a step: 25 apart, less than 3 % of the time.
std::string loop_line(const std::string& loop, const Recipe& recipe) {
  const ScheduleSpec range = range_of(recipe.precision);
  const std::int64_t steps = recipe.training.steps;
  const std::int64_t every =
      std::min(std::clamp<std::int64_t>(steps / 20, 25, 100), std::max<std::int64_t>(2, steps / 4));
  const std::string alpha = loop == ways::kWaterfill ? fmt::format(" alpha={}", kWaterfillAlpha) : "";
  return fmt::format("{} {}:{} grad={}{} every={}", loop, range.bits.low, range.bits.high, range.grad.high,
                     alpha, every);
}

std::string phases_line(const Recipe& recipe, int low, double budget) {
  const ScheduleSpec range = range_of(recipe.precision);
  const std::int64_t steps = recipe.training.steps;
  const auto phase = first_phase(range, low, steps, budget);
  if (!phase) throw UserError(fmt::format("a budget of {} is less than {} bits cost", budget, low));
  return fmt::format("table {}x{} {}x{} grad={}", low, *phase, range.bits.high, steps - *phase,
                     range.grad.high);
}

[[noreturn]] void refuse_phases(const Recipe& recipe, double budget) {
  const ScheduleSpec range = range_of(recipe.precision);
  const Bits lowest{range.bits.low, range.grad.high};
  throw UserError(fmt::format(
      "budget {} cannot be met by two phases of {} to {} bits; expected more than {:.4f} of {}, or "
      "lower bits",
      budget, range.bits.low, range.bits.high,
      static_cast<double>(step_cost(lowest)) / static_cast<double>(step_cost(range.highest())),
      to_string(full_cost_schedule(recipe.precision))));
}

// With the budget spent, and judged as any schedule is.
Recipe with_way(Recipe recipe, const std::string& way, double budget) {
  std::string& schedule = recipe.precision.schedule;
  const std::string full = to_string(full_cost_schedule(recipe.precision));
  if (way == ways::kPhases) refuse_phases(recipe, budget);
  if (way == ways::kShorter) {
    recipe.training = shortened(recipe.training, budget);
    schedule = full;
  } else if (way == ways::kConstant) {
    schedule = with_budget(full, budget);
  } else if (way == ways::kMatched) {
    const ScheduleSpec range = range_of(recipe.precision);
    schedule = with_budget(
        fmt::format("matched {}:{} grad={}", range.bits.low, range.bits.high, range.grad.high), budget);
  } else if (const std::string loop = loop_copied_by(way).value_or(way);
             std::find(loops().begin(), loops().end(), loop) != loops().end()) {
    schedule = with_budget(loop_line(loop, recipe), budget);
  } else if (find_cyclic(way) != nullptr) {
    schedule = way;
    schedule = with_budget(to_string(schedule_of(recipe.precision)), budget);
  } else if (const auto then = way.find(kThen); then == 1 || then == 2) {
    schedule = phases_line(recipe, std::stoi(way), budget);
  } else {
    schedule = with_budget(way, budget);
  }
  return recipe;
}

bool is_shuffled(const std::string& way) {
  const std::optional<std::string> loop = loop_copied_by(way);
  return loop && way == shuffled_loop(*loop);
}

}  // namespace

const std::vector<std::string>& loops() {
  static const std::vector<std::string> all{ways::kPrice, ways::kWaterfill};
  return all;
}

std::string shuffled_loop(const std::string& loop) { return loop + " shuffled"; }
std::string replayed_loop(const std::string& loop) { return loop + " replayed"; }

std::optional<std::string> loop_copied_by(const std::string& way) {
  const auto copied = std::find_if(loops().begin(), loops().end(), [&](const std::string& loop) {
    return way == shuffled_loop(loop) || way == replayed_loop(loop);
  });
  return copied == loops().end() ? std::nullopt : std::optional(*copied);
}

std::optional<std::string> loop_of(const std::string& schedule) {
  const std::string name =
      is_line(schedule) ? parse_schedule(with_budget(schedule, kAnyBudget)).name : schedule;
  const bool is_loop = std::find(loops().begin(), loops().end(), name) != loops().end();
  return is_loop ? std::optional(name) : std::nullopt;
}

std::vector<std::string> budget_schedules(const std::vector<std::string>& given, bool of_script) {
  std::vector<std::string> result;
  for (const std::string& text : given) {
    if (is_line(text)) {
      result.push_back(canonical_line(text));
      continue;
    }
    for (const std::string_view name : split(text, ',')) {
      if (!equal_ignoring_case(name, "all")) {
        result.push_back(canonical(name));
        continue;
      }
      for (const std::string& one : all_names()) {
        if (!of_script || !loop_of(one)) result.push_back(one);
      }
    }
  }
  return result;
}

ScheduleSpec full_cost_schedule(const PrecisionOptions& precision) {
  const Bits highest = range_of(precision).highest();
  return parse_schedule(fmt::format("static {} grad={}", highest.forward, highest.backward));
}

std::vector<std::string> ways_of(const std::string& schedule, const Recipe& recipe, double budget) {
  if (std::find(loops().begin(), loops().end(), schedule) != loops().end())
    return {schedule, shuffled_loop(schedule), replayed_loop(schedule)};
  if (schedule != ways::kPhases) return {schedule};
  const ScheduleSpec range = range_of(recipe.precision);
  std::vector<std::string> result;
  for (int low = range.bits.low; low < range.bits.high; ++low) {
    if (first_phase(range, low, recipe.training.steps, budget))
      result.push_back(fmt::format("{}{}{}", low, kThen, range.bits.high));
  }
  if (result.empty()) result.emplace_back(ways::kPhases);  // which cannot be spent, and says why
  return result;
}

void judge_at_last_bits(Recipe& recipe) {
  if (recipe.precision.eval_bits >= 0) return;
  const ScheduleSpec spec = schedule_of(recipe.precision);
  if (spec.is_closed_loop() || spec.tail) return;
  const std::int64_t steps = recipe.training.steps;
  const auto schedule = make_schedule(spec, steps, rates_of(recipe.training, steps));
  int highest = 0;
  for (std::int64_t step = std::min(steps - steps / 10, steps - 1); step < steps;
       step = schedule->same_until(step)) {
    const Bits bits = schedule->at(step);
    if (is_fp32(bits)) return;
    highest = std::max(highest, bits.forward);
  }
  if (highest != spec.last().forward) recipe.precision.eval_bits = highest;
}

Recipe spend_budget(const Recipe& recipe, const std::string& way, double budget) {
  Recipe result = with_way(recipe, way, budget);
  if (is_shuffled(way)) {
    result.precision.eval_bits = spend_budget(recipe, ways::kConstant, budget).precision.eval_bits;
  } else {
    judge_at_last_bits(result);
  }
  return result;
}

}  // namespace lowtide
