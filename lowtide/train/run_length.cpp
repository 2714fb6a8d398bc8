#include "lowtide/train/run_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "lowtide/base/error.h"
#include "lowtide/schedule/schedule.h"
#include "lowtide/train/learning_rate.h"

namespace lowtide {
namespace {

std::string with_unit(Bits bits) {
  return is_fp32(bits) ? "fp32" : fmt::format("{}/{} bits", bits.forward, bits.backward);
}

// What a run of `total` steps would have done otherwise in its first `done` than one of `planned`; empty: nothing.
std::string first_difference(const Recipe& recipe, std::int64_t planned, std::int64_t total,
                             std::int64_t done) {
  const ScheduleSpec spec = schedule_of(recipe.precision);
  const auto was = make_schedule(spec, planned, rates_of(recipe.training, planned)),
             is = make_schedule(spec, total, rates_of(recipe.training, total));
  if (was->is_stateful() && spec.budget)
    return fmt::format("schedule '{}' has planned its budget for {}", to_string(spec), planned);
  const LearningRate rate_was(recipe.training, planned), rate_is(recipe.training, total);
  for (std::int64_t step = 0; step < done; ++step) {
    if (was->at(step) != is->at(step)) {
      return fmt::format("step {} had {} where schedule '{}' over {} steps has {}", step + 1,
                         with_unit(was->at(step)), to_string(spec), total, with_unit(is->at(step)));
    }
    if (rate_was.at(step) != rate_is.at(step)) {
      return fmt::format("step {} had learning rate {:.6g} where lr-schedule {} over {} steps has {:.6g}",
                         step + 1, rate_was.at(step), recipe.training.lr_schedule, total, rate_is.at(step));
    }
  }
  // A stateful schedule may have observed more steps or fewer, at the same bits.
  if (was->is_stateful() && delay_steps(spec, planned) != delay_steps(spec, total))
    return fmt::format("schedule '{}' over {} steps has a delay of {}, not {}", to_string(spec), total,
                       delay_steps(spec, total), delay_steps(spec, planned));
  const std::int64_t average_was = first_averaged_step(recipe.training, planned),
                     average_is = first_averaged_step(recipe.training, total);
  if (average_was != average_is && std::min(average_was, average_is) < done)
    return fmt::format("averaging began after step {} where swa-start {} of {} steps is {}", average_was,
                       recipe.training.swa_start, total, average_is);
  return "";
}

}  // namespace

std::int64_t total_steps(const TrainingOptions& training, double steps_per_epoch) {
  if (training.steps > 0) return training.steps;
  const double steps = training.epochs * steps_per_epoch;
  if (!(steps <= kMostSteps)) {
    throw UserError(
        fmt::format("epochs is {}, {} steps; expected at most {}", training.epochs, steps, kMostSteps));
  }
  return std::max<std::int64_t>(1, std::llround(steps));
}

std::int64_t first_averaged_step(const TrainingOptions& training, std::int64_t total) {
  return training.swa_start >= 1 ? total : std::llround(training.swa_start * static_cast<double>(total));
}

void check_can_extend(const Recipe& recipe, std::int64_t planned, std::int64_t total, std::int64_t done) {
  if (total < planned) {
    throw UserError(fmt::format(
        "steps is {} where the run has {}; a run can be continued with more steps, not with fewer", total,
        planned));
  }
  const std::string difference = first_difference(recipe, planned, total, done);
  if (difference.empty()) return;
  throw UserError(fmt::format("the run cannot go on from {} to {} steps: {}; start anew with another --out",
                              planned, total, difference));
}

}  // namespace lowtide
