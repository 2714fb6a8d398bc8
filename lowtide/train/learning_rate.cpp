#include "lowtide/train/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lowtide/base/error.h"

namespace lowtide {

LearningRate::LearningRate(const Recipe& recipe, std::int64_t total_steps)
    : kind_(recipe.lr_schedule == "steps"    ? Kind::kSteps
            : recipe.lr_schedule == "cosine" ? Kind::kCosine
            : recipe.lr_schedule == "linear" ? Kind::kLinear
                                             : Kind::kConstant),
      first_(recipe.lr),
      last_(recipe.lr * recipe.lr_final),
      gamma_(recipe.lr_gamma),
      warmup_(recipe.warmup),
      delay_(recipe.lr_delay),
      total_(total_steps - recipe.lr_delay) {
  LOWTIDE_CHECK(total_steps > 0, "a learning rate of no steps");
  if (total_ <= 0) {
    throw UserError(
        fmt::format("lr-delay is {}; expected less than the run's {} steps, so that its schedule has some",
                    delay_, total_steps));
  }
  for (const double at : recipe.lr_steps) {
    milestones_.push_back(std::llround(at > 1 ? at : at * static_cast<double>(total_)));
  }
}

double LearningRate::at(std::int64_t step) const {
  // Warm-up reaches the full rate at its last step; the decay goes on underneath it.
  const double rise = step < warmup_ ? static_cast<double>(step + 1) / static_cast<double>(warmup_) : 1.0;
  const std::int64_t done = std::max<std::int64_t>(0, step - delay_);
  const double progress = static_cast<double>(done) / static_cast<double>(total_);
  double rate = first_;
  switch (kind_) {
    case Kind::kSteps:
      for (const std::int64_t milestone : milestones_) {
        if (done >= milestone) rate *= gamma_;
      }
      break;
    case Kind::kCosine:
      rate = last_ + (first_ - last_) * (1 + std::cos(std::numbers::pi * progress)) / 2;
      break;
    case Kind::kLinear:
      rate = first_ + (last_ - first_) * progress;
      break;
    case Kind::kConstant:
      break;
  }
  return rise * rate;
}

}  // namespace lowtide
