#pragma once

#include <cstdint>

#include "lowtide/base/json.h"
#include "lowtide/train/metric.h"

namespace lowtide {

// The best evaluation of a run so far, and how many since then were not better.
class BestEvaluation {
 public:
  // `patience`: after so many in a row that were not better there is nothing to wait for; 0: there always is.
  BestEvaluation(const Metric& metric, std::int64_t patience);

  // An equal one is not better, one that is not finite never is.
  void observe(std::int64_t step, double value);

  std::int64_t step() const { return step_; }  // 0: none was finite yet
  double value() const { return value_; }
  std::int64_t since() const { return since_; }
  bool out_of_patience() const { return patience_ > 0 && since_ >= patience_; }

  Json state() const;
  void restore(const Json& state);

 private:
  bool higher_is_better_;
  std::int64_t patience_;
  std::int64_t step_ = 0, since_ = 0;
  double value_ = 0;
};

}  // namespace lowtide
