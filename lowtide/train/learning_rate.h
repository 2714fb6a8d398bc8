#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/train/recipe.h"

namespace lowtide {

// The learning rate of each step: a pure function of it.
class LearningRate {
 public:
  LearningRate(const Recipe& recipe, std::int64_t total_steps);
  double at(std::int64_t step) const;

 private:
  enum class Kind { kSteps, kCosine, kLinear, kConstant };

  Kind kind_;
  double first_, last_, gamma_;
  std::vector<std::int64_t> milestones_;
  std::int64_t warmup_, delay_, total_;  // total_: of the schedule, after the delay
};

}  // namespace lowtide
