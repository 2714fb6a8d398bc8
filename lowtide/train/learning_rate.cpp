#include "lowtide/train/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lowtide/base/error.h"
#include "lowtide/base/whole_number.h"

namespace lowtide {

LearningRate::Kind LearningRate::kind_named(const std::string& name) {
  if (name == "steps") return Kind::kSteps;
  if (name == "cosine") return Kind::kCosine;
  if (name == "linear") return Kind::kLinear;
  if (name == "inverse-sqrt") return Kind::kInverseSqrt;
  if (name == "plateau") return Kind::kPlateau;
  LOWTIDE_CHECK(name == "constant", name);
  return Kind::kConstant;
}

LearningRate::LearningRate(const TrainingOptions& training, std::int64_t total_steps)
    : kind_(kind_named(training.lr_schedule)),
      first_(training.lr),
      last_(training.lr * training.lr_final),
      gamma_(training.lr_gamma),
      warmup_(training.warmup),
      delay_(training.lr_delay),
      total_(total_steps - training.lr_delay) {
  LOWTIDE_CHECK(total_steps > 0, "a learning rate of no steps");
  if (total_ <= 0) {
    throw UserError(
        fmt::format("lr-delay is {}; expected less than the run's {} steps, so that its schedule has some",
                    delay_, total_steps));
  }
  for (const double at : training.lr_steps) {
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
    case Kind::kInverseSqrt:  // Vaswani et al. 2017, eq. 3, with the full rate where the warm-up ends
      rate =
          first_ * std::sqrt(static_cast<double>(warmup_) / static_cast<double>(std::max(step + 1, warmup_)));
      break;
    case Kind::kPlateau:
      rate = first_ * std::pow(gamma_, static_cast<double>(falls_));
      break;
    case Kind::kConstant:
      break;
  }
  return rise * rate;
}

Rates rates_of(const TrainingOptions& training, std::int64_t total_steps) {
  const LearningRate rate(training, total_steps);
  if (rate.is_stateful()) return {};
  return [rate](std::int64_t step) { return rate.at(step); };
}

void LearningRate::observe(double held_out_loss) {
  if (lowest_ && held_out_loss >= *lowest_) {
    ++falls_;
  } else {
    lowest_ = held_out_loss;
  }
}

Json LearningRate::state() const {
  if (!is_stateful()) return Json::object();
  return {{"lowest", lowest_ ? Json(*lowest_) : Json()}, {"falls", falls_}};
}

void LearningRate::restore(const Json& state) {
  if (!is_stateful()) return;
  if (!state.at("lowest").is_null()) lowest_ = state.at("lowest").get<double>();
  falls_ = whole_number(state, "falls", 0, kMostCounted, "state of the learning rate");
}

}  // namespace lowtide
