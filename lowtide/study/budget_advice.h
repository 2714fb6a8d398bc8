#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lowtide/study/advice.h"

namespace lowtide {

struct BudgetQuestion {
  std::optional<double> budget;  // a share of static's cost; or, without one,
  Goal goal = Goal::kBalanced;
  bool may_begin_low = true;  // two phases begin with low bits, where a critical period may lie
};

struct BudgetChoice {
  std::string way;    // to spend the budget
  double budget = 1;  // 1: static at the highest bits
  std::vector<std::string> reasons;
};

// What a budget study speaks for. At a budget that is constant bits, unless another way is better than they are and told
// from noise: what is simple needs no proof. Nothing where no budget has a result yet and less than static's cost is asked about.
std::optional<BudgetChoice> choose_from_budgets(const Analysis& study, const BudgetQuestion& question);

}  // namespace lowtide
