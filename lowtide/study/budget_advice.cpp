#include "lowtide/study/budget_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/study/contrast.h"
#include "lowtide/study/equal_cost.h"

namespace lowtide {
namespace {

constexpr double kSignificant = 0.05;

double budget_of(const Setting& setting) { return setting.budget.value_or(1); }

bool begins_low(const Setting& setting) { return setting.schedule.name == "table"; }

bool beats_constant(const Analysis& study, const Setting& setting) {
  return setting.contrast && setting.contrast->p.value_or(1) < kSignificant &&
         is_better(*study.metric, setting.contrast->difference, 0);
}

// At each budget what is chosen there, from the smallest on; static last.
std::vector<const Setting*> choices(const Analysis& study, bool may_begin_low) {
  std::vector<const Setting*> result;
  for (const Setting& setting : study.settings) {  // at a budget from the best to the worst
    const bool known = !result.empty() && budget_of(*result.back()) == budget_of(setting);
    if (loop_copied_by(setting.way)) continue;  // nobody has its bits before the loop was run
    const bool possible = !setting.budget || setting.way == ways::kConstant || beats_constant(study, setting);
    if (!known && possible && (may_begin_low || !begins_low(setting))) result.push_back(&setting);
  }
  return result;
}

std::string seeds_text(const Setting& setting) {
  return fmt::format("{} seed{}", setting.by_seed.size(), setting.by_seed.size() == 1 ? "" : "s");
}

std::string measured_text(const Analysis& study, const Setting& setting) {
  return fmt::format("{} {} {} over {}", study.split, study.metric->name,
                     metric_text(*study.metric, setting.mean), seeds_text(setting));
}

// Why this way at its budget.
std::string way_reason(const Analysis& study, const Setting& setting) {
  if (!setting.budget) return fmt::format("Static at full cost has a {}.", measured_text(study, setting));
  if (setting.way == ways::kConstant) {
    return fmt::format(
        "At {} of static's cost no way to spend it that was measured is told to be better than constant "
        "bits: {}.",
        *setting.budget, measured_text(study, setting));
  }
  return fmt::format(
      "At {} of static's cost {} is the best that is told to be better than constant bits: {} (p {}), {}.",
      *setting.budget, setting.way, metric_difference(*study.metric, setting.contrast->difference),
      p_text(*setting.contrast->p), measured_text(study, setting));
}

const Setting* nearest(const std::vector<const Setting*>& settings, double budget) {
  return *std::min_element(settings.begin(), settings.end(), [&](const Setting* a, const Setting* b) {
    return std::abs(budget_of(*a) - budget) < std::abs(budget_of(*b) - budget);
  });
}

std::optional<BudgetChoice> at_budget(const Analysis& study, std::vector<const Setting*> settings,
                                      double budget) {
  if (budget >= 1)
    return BudgetChoice{
        .way = "", .budget = 1, .reasons = {"The budget allows the highest bits throughout."}};
  std::erase_if(settings, [](const Setting* setting) { return !setting->budget; });
  if (settings.empty()) return std::nullopt;
  const Setting* chosen = nearest(settings, budget);
  BudgetChoice choice{.way = chosen->way, .budget = budget, .reasons = {way_reason(study, *chosen)}};
  if (budget_of(*chosen) != budget) {
    choice.reasons.push_back(fmt::format("Mind that {} is the nearest budget that was measured, not {:.4g}.",
                                         *chosen->budget, budget));
  }
  return choice;
}

// The cheapest that is no more than noise behind `mean`.
const Setting* cheapest_as_good(const Analysis& study, const std::vector<const Setting*>& settings,
                                double mean) {
  const double noise = noise_of_means(study);
  const auto found = std::find_if(settings.begin(), settings.end(), [&](const Setting* setting) {
    const double behind = study.metric->higher_is_better ? mean - setting->mean : setting->mean - mean;
    return behind <= noise;
  });
  return found == settings.end() ? settings.back() : *found;
}

BudgetChoice by_goal(const Analysis& study, const std::vector<const Setting*>& settings, Goal goal) {
  const Setting* best = *std::min_element(
      settings.begin(), settings.end(),
      [&](const Setting* a, const Setting* b) { return is_better(*study.metric, a->mean, b->mean); });
  const Setting* full = settings.back();
  const std::string noise = metric_number(*study.metric, noise_of_means(study));
  const Setting* chosen = settings.front();
  std::string why = "is the smallest budget that was measured";
  if (goal == Goal::kBest) {
    chosen = cheapest_as_good(study, settings, best->mean);
    why = fmt::format("is the smallest budget within noise ({}) of the best", noise);
  } else if (goal == Goal::kBalanced) {
    chosen = cheapest_as_good(study, settings, full->mean);
    why = fmt::format("is the smallest budget that is not behind static by more than noise ({})", noise);
  }
  return {.way = chosen->way,
          .budget = budget_of(*chosen),
          .reasons = {fmt::format("Of the budgets that were measured, {} {}.", budget_of(*chosen), why),
                      way_reason(study, *chosen)}};
}

}  // namespace

std::optional<BudgetChoice> choose_from_budgets(const Analysis& study, const BudgetQuestion& question) {
  const std::vector<const Setting*> settings = choices(study, question.may_begin_low);
  if (settings.empty())
    throw UserError(
        "the budget study has no result yet that advice could start from: neither constant nor static");
  std::optional<BudgetChoice> choice = question.budget ? at_budget(study, settings, *question.budget)
                                                       : by_goal(study, settings, question.goal);
  if (choice && study.split == "test")
    choice->reasons.emplace_back(
        "No items were held out: the test set made this choice, and is no longer a fresh judge of it.");
  return choice;
}

}  // namespace lowtide
