#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lowtide/recipe/recipe.h"
#include "lowtide/schedule/schedule.h"

namespace lowtide {

// The learning rate of each step: a pure function of it, but for `plateau`, which listens to the held-out loss.
class LearningRate {
 public:
  LearningRate(const TrainingOptions& training, std::int64_t total_steps);
  double at(std::int64_t step) const;

  bool is_stateful() const { return kind_ == Kind::kPlateau; }
  void observe(double held_out_loss);

  Json state() const;
  void restore(const Json& state);

 private:
  enum class Kind { kSteps, kCosine, kLinear, kInverseSqrt, kPlateau, kConstant };
  static Kind kind_named(const std::string& name);

  Kind kind_;
  double first_, last_, gamma_;
  std::vector<std::int64_t> milestones_;
  std::int64_t warmup_, delay_, total_;  // total_: of the schedule, after the delay
  std::optional<double> lowest_;         // held-out loss so far
  std::int64_t falls_ = 0;               // of the rate, on a plateau
};

// The rates of a run, for a schedule that follows them; none where they are not known beforehand.
Rates rates_of(const TrainingOptions& training, std::int64_t total_steps);

}  // namespace lowtide
