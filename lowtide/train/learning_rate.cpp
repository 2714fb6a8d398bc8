#include "lowtide/train/learning_rate.h"

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
      total_(total_steps) {
  LOWTIDE_CHECK(total_ > 0, "a learning rate of no steps");
  for (const double at : recipe.lr_steps) {
    milestones_.push_back(std::llround(at > 1 ? at : at * static_cast<double>(total_)));
  }
}

double LearningRate::at(std::int64_t step) const {
  // Warm-up reaches the full rate at its last step; the decay goes on underneath it.
  const double rise = step < warmup_ ? static_cast<double>(step + 1) / static_cast<double>(warmup_) : 1.0;
  const double progress = static_cast<double>(step) / static_cast<double>(total_);
  double rate = first_;
  switch (kind_) {
    case Kind::kSteps:
      for (const std::int64_t milestone : milestones_) {
        if (step >= milestone) rate *= gamma_;
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
