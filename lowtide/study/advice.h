#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/study/analysis.h"

namespace lowtide {

enum class Goal { kCheapest, kBalanced, kBest };

struct AdviceRequest {
  Recipe recipe;
  std::int64_t steps = 0;
  std::optional<double> budget;  // largest relative cost, of fp32; or, without one,
  Goal goal = Goal::kBalanced;
  std::vector<Analysis> studies;  // what was measured, to argue from
};

struct Advice {
  ScheduleSpec schedule;
  TrainingOptions training;          // the recipe's, but where the advice is to train for fewer steps
  int eval_bits = -1;                // the recipe's, but where a budget leaves its last steps fewer
  double relative_cost = 0;          // of fp32, counted step by step
  double of_static = 0;              // the same against static at the recipe's highest bits
  std::vector<std::string> reasons;  // a sentence each
};

// A schedule for the recipe. From a suite or a budget study among the studies by its measurements; else a budget is spent on
// constant bits, and a goal chooses by the rule of Wolfe and Kyrillidis: schedules of large saving where cost is all, of small
// saving where the metric is, medium in between. A critical period in one of the studies makes quantisation start after it.
// UserError where nothing meets the budget.
Advice advise(const AdviceRequest& request);

}  // namespace lowtide
