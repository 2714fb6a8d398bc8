#include "lowtide/train/best_evaluation.h"

#include <cmath>

#include "lowtide/base/whole_number.h"

namespace lowtide {

BestEvaluation::BestEvaluation(const Metric& metric, std::int64_t patience)
    : higher_is_better_(metric.higher_is_better), patience_(patience) {}

void BestEvaluation::observe(std::int64_t step, double value) {
  const bool better = step_ == 0 || (higher_is_better_ ? value > value_ : value < value_);
  if (!better || !std::isfinite(value)) {
    ++since_;
    return;
  }
  step_ = step;
  value_ = value;
  since_ = 0;
}

Json BestEvaluation::state() const { return {{"step", step_}, {"value", value_}, {"since", since_}}; }

void BestEvaluation::restore(const Json& state) {
  step_ = whole_number(state, "step", 0, kMostCounted, "the best evaluation");
  value_ = state.at("value");
  since_ = whole_number(state, "since", 0, kMostCounted, "the best evaluation");
}

}  // namespace lowtide
