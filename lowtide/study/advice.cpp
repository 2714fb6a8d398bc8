#include "lowtide/study/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/cost/bit_operations.h"
#include "lowtide/cost/summary.h"
#include "lowtide/schedule/cycles.h"
#include "lowtide/study/budget_advice.h"
#include "lowtide/study/contrast.h"
#include "lowtide/study/equal_cost.h"
#include "lowtide/train/learning_rate.h"

namespace lowtide {
namespace {

struct Candidate {
  ScheduleSpec spec;
  double cost = 0;                            // of fp32, over the recipe's steps
  std::optional<TrainingOptions> training{};  // where that is not the recipe's
  std::optional<int> eval_bits{};             // likewise
};

class Adviser {
 public:
  explicit Adviser(const AdviceRequest& request)
      : request_(request), static_(static_schedule()), static_cost_(relative_cost(static_.highest())) {}

  Advice advise() {
    delay_past_critical_period();
    std::optional<Candidate> chosen = by_measurement();
    if (!chosen) chosen = request_.budget ? by_budget() : by_rule();
    reasons_.push_back(
        fmt::format("It costs {:.4f} of fp32 and {:.1f} % of static {} grad={}, counted over {} steps with "
                    "every layer at "
                    "the scheduled bits.",
                    chosen->cost, 100 * chosen->cost / static_cost_, static_.bits.high, static_.grad.high,
                    request_.steps));
    return {chosen->spec,
            chosen->training.value_or(request_.recipe.training),
            chosen->eval_bits.value_or(request_.recipe.precision.eval_bits),
            chosen->cost,
            chosen->cost / static_cost_,
            reasons_};
  }

 private:
  ScheduleSpec static_schedule() const {
    PrecisionOptions precision = request_.recipe.precision;
    precision.schedule = "CR";
    precision.cycles = 1;
    const ScheduleSpec range = schedule_of(precision);  // reads bits and gradient bits, with their checks
    return parse_schedule(fmt::format("static {} grad={}", range.bits.high, range.grad.high));
  }

  // One of the ten with the recipe's parameters.
  ScheduleSpec cyclic(std::string_view name) const {
    PrecisionOptions precision = request_.recipe.precision;
    precision.schedule = name;
    return schedule_of(precision);
  }

  int lowest_bits() const {
    PrecisionOptions precision = request_.recipe.precision;
    precision.schedule = "CR";
    return schedule_of(precision).bits.low;
  }

  Candidate candidate(ScheduleSpec spec) const {
    if (delay_percent_ > 0 && !spec.delay && (spec.name != "static" || spec.budget))
      spec.delay = Part{.percent = delay_percent_, .bits = {}};
    const Rates rates = spec.follows_rates() ? rates_of(request_.recipe.training, request_.steps) : Rates{};
    const double cost = summarise(spec, request_.steps, rates).relative_cost;
    // A closed loop's summary is of its plan; a run spends its budget.
    return {spec, spec.is_closed_loop() && spec.budget ? *spec.budget * relative_cost(spec.highest()) : cost};
  }

  // A way to spend a budget, at the bits that it ends with.
  Candidate judged_at_last_bits(Candidate candidate) {
    Recipe recipe = request_.recipe;
    recipe.precision.schedule = to_string(candidate.spec);
    recipe.training = candidate.training.value_or(recipe.training);
    if (!candidate.training) recipe.training.steps = request_.steps;
    judge_at_last_bits(recipe);
    if (recipe.precision.eval_bits == request_.recipe.precision.eval_bits) return candidate;
    candidate.eval_bits = recipe.precision.eval_bits;
    reasons_.push_back(
        fmt::format("It never has more than {} bits in its last steps, and is to be judged there, not at {}.",
                    *candidate.eval_bits, candidate.spec.last().forward));
    return candidate;
  }

  int fewest_bits(const ScheduleSpec& spec) const {
    int fewest = kMostBits;
    for (const BitRun& run : summarise(spec, request_.steps).runs)
      fewest = std::min(fewest, run.bits.forward);
    return fewest;
  }

  bool fits(const Candidate& candidate) const {
    return !request_.budget || candidate.cost <= *request_.budget;
  }

  void delay_past_critical_period() {
    for (const Analysis& study : request_.studies) {
      if (!study.period) continue;
      const double share =
          static_cast<double>(study.period->steps) / static_cast<double>(study.study.recipe.training.steps);
      const double percent = std::ceil(100 * share - 1e-9);
      reasons_.push_back(fmt::format(
          "The critical-period study found damage that lasts from low precision in the first {:.0f} % of "
          "training ({} {}), "
          "so quantisation starts after it.",
          percent, study.metric->name, metric_difference(*study.metric, study.period->difference)));
      note_differences(study.study.recipe, "critical-period study");
      delay_percent_ = std::max(delay_percent_, percent);
    }
    if (delay_percent_ >= 100) {
      throw UserError(
          "the critical period found spans the whole training: no part of it can be in low precision; train "
          "with "
          "--schedule static");
    }
  }

  bool has_model_and_data(const Recipe& measured) const;
  // Says in what a study was measured with another recipe than the one that is asked about.
  void note_differences(const Recipe& measured, const char* study);
  std::optional<Candidate> by_measurement();
  std::optional<Candidate> by_suite(const Analysis& suite);
  bool is_possible(const Setting& setting);
  std::optional<Candidate> by_budget_study(const Analysis& study);
  Candidate spent(const std::string& way, double budget);
  const Setting* choose(const Analysis& suite, const std::vector<const Setting*>& settings);
  Candidate by_rule();
  // That a suite, or the papers' rule, does not know of constant bits that cost as much.
  std::string constant_text(const Candidate& chosen) const;
  Candidate by_budget();
  double least_share() const;

  const AdviceRequest& request_;
  const ScheduleSpec static_;
  const double static_cost_;
  double delay_percent_ = 0;
  std::vector<std::string> reasons_;
};

const Setting* best_of(const Metric& metric, const std::vector<const Setting*>& settings) {
  return *std::min_element(settings.begin(), settings.end(), [&](const Setting* a, const Setting* b) {
    return is_better(metric, a->mean, b->mean);
  });
}

const Setting* cheapest_of(const std::vector<const Setting*>& settings) {
  return *std::min_element(settings.begin(), settings.end(), [](const Setting* a, const Setting* b) {
    return a->cost.relative_actual < b->cost.relative_actual;
  });
}

// The cheapest that is no more than noise behind `mean`.
const Setting* cheapest_as_good(const Analysis& suite, std::vector<const Setting*> settings, double mean) {
  const double tolerance = noise_of_means(suite);
  std::erase_if(settings, [&](const Setting* setting) {
    const double behind = suite.metric->higher_is_better ? mean - setting->mean : setting->mean - mean;
    return behind > tolerance;
  });
  return settings.empty() ? nullptr : cheapest_of(settings);
}

bool Adviser::has_model_and_data(const Recipe& measured) const {
  const Recipe& asked = request_.recipe;
  return measured.model.name == asked.model.name && measured.data.format == asked.data.format &&
         measured.data.dir == asked.data.dir;
}

void Adviser::note_differences(const Recipe& measured, const char* study) {
  const Recipe& asked = request_.recipe;
  if (!has_model_and_data(measured)) {
    reasons_.emplace_back(
        fmt::format("Mind that the {} was measured with {} on {}, not with this recipe's {} on {}.", study,
                    measured.model.name, measured.data.dir, asked.model.name, asked.data.dir));
  }
  if (measured.training.steps != request_.steps) {
    reasons_.emplace_back(
        fmt::format("Mind that the {} was measured over {} steps, not over this recipe's {}: what is best or "
                    "does damage in a training of another length it does not tell.",
                    study, measured.training.steps, request_.steps));
  }
}

// First by what was measured with the recipe's own model and data.
std::optional<Candidate> Adviser::by_measurement() {
  for (const bool own : {true, false}) {
    for (const Analysis& study : request_.studies) {
      if (has_model_and_data(study.study.recipe) != own) continue;
      std::optional<Candidate> chosen;
      if (study.study.kind == Study::kSuite) chosen = by_suite(study);
      if (study.study.kind == Study::kBudget) chosen = by_budget_study(study);
      if (chosen) return chosen;
    }
  }
  return std::nullopt;
}

// Whether it can be laid over the steps that are asked about; a table of another length, say, cannot.
bool Adviser::is_possible(const Setting& setting) {
  try {
    candidate(setting.schedule);
    return true;
  } catch (const UserError& error) {
    reasons_.push_back(
        fmt::format("{} was measured in the suite, and is left out here: {}.", setting.name, error.what()));
    return false;
  }
}

std::optional<Candidate> Adviser::by_suite(const Analysis& suite) {
  std::vector<const Setting*> settings;
  for (const Setting& setting : suite.settings) {
    if (!is_fp32(setting.schedule.highest()) &&
        setting.schedule.name != "progressive" &&  // whose cost is known once it has run
        is_possible(setting) && fits(candidate(setting.schedule)))
      settings.push_back(&setting);
  }
  if (settings.empty()) {
    reasons_.emplace_back("None of the schedules measured in the suite meets the budget.");
    return std::nullopt;
  }
  const Setting* chosen = choose(suite, settings);
  note_differences(suite.study.recipe, "suite");
  const Candidate result = candidate(chosen->schedule);
  if (find_cyclic(chosen->schedule.name) != nullptr) reasons_.push_back(constant_text(result));
  return result;
}

std::optional<Candidate> Adviser::by_budget_study(const Analysis& study) {
  std::optional<double> budget;
  // A share of static that was asked for comes back with its last digit off: 0.46 as 0.45999999999999996.
  if (request_.budget) budget = std::round(*request_.budget / static_cost_ * 1e9) / 1e9;
  const std::optional<BudgetChoice> choice = choose_from_budgets(
      study, {.budget = budget, .goal = request_.goal, .may_begin_low = delay_percent_ == 0});
  if (!choice) {
    reasons_.emplace_back("The budget study has no result at any budget yet, and could not be asked.");
    return std::nullopt;
  }
  reasons_.insert(reasons_.end(), choice->reasons.begin(), choice->reasons.end());
  note_differences(study.study.recipe, "budget study");
  if (choice->budget >= 1) return candidate(static_);
  try {
    return spent(choice->way, choice->budget);
  } catch (const UserError& error) {
    if (choice->way == ways::kConstant) throw;
    reasons_.push_back(
        fmt::format("{} cannot spend {:.4g} of static's cost here, and gives way to constant bits: {}.",
                    choice->way, choice->budget, error.what()));
    return spent(ways::kConstant, choice->budget);
  }
}

Candidate Adviser::spent(const std::string& way, double budget) {
  Recipe recipe = request_.recipe;
  recipe.training.steps = request_.steps;
  recipe = spend_budget(recipe, way, budget);
  Candidate result = candidate(schedule_of(recipe.precision));
  if (recipe.training.steps != request_.steps) {
    result.training = recipe.training;
    result.cost *= static_cast<double>(recipe.training.steps) / static_cast<double>(request_.steps);
  }
  return judged_at_last_bits(result);
}

const Setting* Adviser::choose(const Analysis& suite, const std::vector<const Setting*>& settings) {
  const Metric& metric = *suite.metric;
  const Setting* reference = find_setting(suite, suite.reference);
  const Setting* best = best_of(metric, settings);
  const Setting* chosen = best;
  const std::string within = fmt::format("is the cheapest that is within noise ({}) of the best",
                                         metric_number(metric, noise_of_means(suite)));
  std::string why = "is the best of those that meet the budget";
  if (!request_.budget && request_.goal == Goal::kCheapest) {
    chosen = cheapest_of(settings);
    why = "is the cheapest";
  } else if (!request_.budget && request_.goal == Goal::kBest) {
    chosen = cheapest_as_good(suite, settings, best->mean);
    why = within;
  } else if (!request_.budget) {
    const Setting* as_good =
        cheapest_as_good(suite, settings, reference != nullptr ? reference->mean : best->mean);
    if (as_good != nullptr) chosen = as_good;
    why = as_good == nullptr ? "is the best, since none is as good as static"
          : reference == nullptr
              ? within
              : fmt::format("is the cheapest that is not behind static by more than noise ({})",
                            metric_number(metric, noise_of_means(suite)));
  }
  reasons_.push_back(fmt::format("Of the {} schedules measured in the suite, {} {}: {} {} {} over {} seed{}.",
                                 suite.settings.size(), chosen->name, why, suite.split, metric.name,
                                 metric_text(metric, chosen->mean), chosen->by_seed.size(),
                                 chosen->by_seed.size() == 1 ? "" : "s"));
  if (chosen->contrast) {
    reasons_.push_back(fmt::format("Against static it is {}{}.",
                                   metric_difference(metric, chosen->contrast->difference),
                                   chosen->contrast->p ? fmt::format(" (p {})", p_text(*chosen->contrast->p))
                                                       : ", which so few seeds cannot tell from noise"));
  }
  if (suite.split == "test")
    reasons_.emplace_back(
        "No items were held out: the test set made this choice, and is no longer a fresh judge of it.");
  return chosen;
}

Candidate Adviser::by_rule() {
  static const std::map<Goal, std::pair<const char*, const char*>> kRule{
      {Goal::kCheapest,
       {"RR",
        "Cost is all: RR is of the group with the largest saving; it stays low and leaps up at the end of "
        "each cycle."}},
      {Goal::kBalanced,
       {"CR",
        "Between cost and metric: CR is of the group with medium saving, and the original cyclic "
        "schedule."}},
      {Goal::kBest,
       {"ER",
        "The metric is all: ER is of the group with the smallest saving; it leaps up at once and stays "
        "high."}}};
  const auto& [name, why] = kRule.at(request_.goal);
  const Candidate chosen = candidate(cyclic(name));
  reasons_.emplace_back(
      "The choice is by the papers' rule, which compares with static at the highest bits, not with constant "
      "bits that cost as much.");
  reasons_.emplace_back(why);
  reasons_.push_back(constant_text(chosen));
  return chosen;
}

std::string Adviser::constant_text(const Candidate& chosen) const {
  return fmt::format(
      "Where cyclic schedules were measured beside constant bits at equal cost, none was told to be better "
      "(docs, results): --budget {:.2f} spends as much on those, and `lowtide study budget` tells what is "
      "better here.",
      chosen.cost / static_cost_);
}

// What the fewest bits after a delay cost, of static.
double Adviser::least_share() const {
  const double delay = delay_percent_ / 100;
  return delay + (1 - delay) * relative_cost(Bits{kFewestBits, static_.grad.high}) / static_cost_;
}

// Constant bits: what is known of equal cost speaks for them.
Candidate Adviser::by_budget() {
  if (fits(candidate(static_))) {
    reasons_.emplace_back("The budget allows the highest bits throughout.");
    return candidate(static_);
  }
  ScheduleSpec constant = static_;
  // Downwards: never above the budget.
  const double share = std::floor(*request_.budget / static_cost_ * 1e4 * (1 + 1e-12)) / 1e4;
  if (share < least_share())
    throw UserError(fmt::format(
        "no schedule meets the budget of {:.4f} of fp32 ({:.3f} of static {}): {} bits{} cost {:.3f} "
        "of it; raise the budget, or lower the recipe's highest bits or gradient bits",
        *request_.budget, *request_.budget / static_cost_, static_.bits.high, kFewestBits,
        delay_percent_ > 0 ? " after the delay" : "", least_share()));
  constant.budget = share;
  const Candidate chosen = candidate(constant);
  const int fewest = fewest_bits(chosen.spec);
  reasons_.emplace_back(
      "Constant bits: where cyclic schedules were measured beside them at equal bit operations, none was "
      "better "
      "(docs, studies: measured at equal cost). Whether one is here, `lowtide study budget` tells, and "
      "--from "
      "argues by that.");
  if (fewest < lowest_bits())
    reasons_.push_back(fmt::format(
        "The budget takes {} bits, fewer than the recipe's lowest, {}. Whether the network learns "
        "there only `lowtide range-test` can tell.",
        fewest, lowest_bits()));
  return judged_at_last_bits(chosen);
}

}  // namespace

Advice advise(const AdviceRequest& request) { return Adviser(request).advise(); }

}  // namespace lowtide
