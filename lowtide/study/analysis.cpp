#include "lowtide/study/analysis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/cost/summary.h"
#include "lowtide/schedule/cycles.h"
#include "lowtide/schedule/text.h"
#include "lowtide/study/best_of_ten.h"
#include "lowtide/study/contrast.h"
#include "lowtide/study/equal_cost.h"

namespace lowtide {
namespace {

constexpr double kSignificant = 0.05;

std::string group_of(const ScheduleSpec& spec) {
  const CyclicSchedule* cyclic = spec.delay ? nullptr : find_cyclic(spec.name);
  return cyclic == nullptr ? "" : std::string(cyclic->group);
}

const RunSummary* find_folder(const RunScan& scan, const Member& member) {
  const auto found = std::find_if(scan.runs.begin(), scan.runs.end(),
                                  [&](const RunSummary& run) { return run.name == member.name; });
  return found == scan.runs.end() ? nullptr : &*found;
}

// A run of another length than the study's, continued or trained by hand, is not a repetition of the others.
const RunSummary* find_run(const RunScan& scan, const Member& member) {
  const RunSummary* run = find_folder(scan, member);
  return run != nullptr && run->steps == member.recipe.training.steps ? run : nullptr;
}

std::string why_missing(const Member& member, const RunScan& scan) {
  if (const RunSummary* run = find_folder(scan, member))
    return fmt::format("has {} steps, not the study's {}", run->steps, member.recipe.training.steps);
  const auto skipped = std::find_if(scan.skipped.begin(), scan.skipped.end(), [&](const SkippedFolder& one) {
    return one.folder.filename() == member.name;
  });
  return skipped == scan.skipped.end() ? "not started" : skipped->reason;
}

// Members without a result with the reason that the scan found, and runs that are no members.
std::vector<SkippedFolder> left_out(const std::vector<Member>& all, const RunScan& scan) {
  std::vector<SkippedFolder> result;
  for (const Member& member : all) {
    if (find_run(scan, member) == nullptr) result.push_back({member.name, why_missing(member, scan)});
  }
  const auto is_member = [&](const std::string& name) {
    return std::any_of(all.begin(), all.end(), [&](const Member& member) { return member.name == name; });
  };
  for (const RunSummary& run : scan.runs) {
    if (!is_member(run.name)) result.push_back({run.folder, "not a member of this study"});
  }
  for (const SkippedFolder& skipped : scan.skipped) {
    if (!is_member(skipped.folder.filename().string())) result.push_back(skipped);
  }
  return result;
}

// With the figures of its best weights in the place of its last ones'.
RunSummary at_best(RunSummary run) {
  if (!run.best || !run.best->test.metric)
    throw UserError(fmt::format(
        "{}: the run kept no best weights to judge by; expected keep-best, or an analysis without --best",
        run.folder.string()));
  run.test = *run.best->test.metric;
  run.valid = run.best->valid;
  return run;
}

double value_of(const RunSummary& run, Judge judge) {
  if (judge == Judge::kTest) return run.test;
  if (!run.valid) throw UserError(fmt::format("{}: no items were held out to judge by", run.folder.string()));
  return *run.valid;
}

// The mean of n, from that of n - 1 and the last.
void move_mean(RunCost& mean, const RunCost& last, std::size_t n) {
  for (double RunCost::*part : {&RunCost::relative_paper, &RunCost::relative_actual, &RunCost::gbitops_paper,
                                &RunCost::gbitops_actual, &RunCost::seconds}) {
    mean.*part += (last.*part - mean.*part) / static_cast<double>(n);
  }
}

void add_run(Analysis& analysis, const Member& member, const RunSummary& run, double value) {
  const Metric* metric = &find_metric(run.metric);
  if (analysis.metric == nullptr) analysis.metric = metric;
  if (analysis.metric != metric)
    throw UserError(fmt::format("{}: its metric is {}, that of other members {}", run.folder.string(),
                                metric->name, analysis.metric->name));
  auto setting = std::find_if(analysis.settings.begin(), analysis.settings.end(),
                              [&](const Setting& s) { return s.name == member.setting; });
  if (setting == analysis.settings.end()) {
    const ScheduleSpec spec = schedule_of(member.recipe.precision);
    setting = analysis.settings.insert(setting, Setting{.name = member.setting,
                                                        .schedule = spec,
                                                        .group = group_of(spec),
                                                        .at = member.at,
                                                        .budget = member.budget,
                                                        .way = member.way});
  }
  setting->by_seed[run.seed] = value;
  if (run.valid) setting->held_out[run.seed] = *run.valid;
  setting->judged_at.insert(run.eval_bits);
  move_mean(setting->cost, run.cost, setting->by_seed.size());
}

void summarise_seeds(Setting& setting) {
  const std::vector<double> all = values_of(setting);
  setting.mean = mean(all);
  setting.deviation = sample_deviation(all);
}

std::optional<double> saving_of(const Analysis& analysis, const Setting& setting) {
  if (setting.budget) return std::nullopt;  // it is asked for, not found
  const CostCount count = analysis.measure.count;
  const Bits peak = peak_bits(setting.schedule);
  const double cost = setting.cost.relative(count);
  if (count == CostCount::kPaper) return 1 - cost / relative_cost(peak);
  for (const Setting& other : analysis.settings) {
    if (to_string(other.schedule) == static_line(peak)) return 1 - cost / other.cost.relative(count);
  }
  return std::nullopt;
}

// What is spent of a budget is the budget: constant bits, which cannot make every change, are not cheaper for leaving
// some of it.
double front_cost(const Analysis& analysis, const Setting& setting) {
  const bool by_budget =
      analysis.study.kind == Study::kBudget && analysis.measure.axis == CostAxis::kBitOperations;
  return by_budget ? setting.budget.value_or(1) : setting.cost.total(analysis.measure);
}

void mark_front(Analysis& analysis) {
  std::vector<CostAndValue> points;
  for (const Setting& setting : analysis.settings)
    points.push_back({front_cost(analysis, setting), setting.mean});
  const std::vector<bool> front = pareto_front(points, *analysis.metric);
  for (std::size_t i = 0; i < front.size(); ++i) analysis.settings[i].on_front = front[i];
}

// What the fewest seeds of a row can tell, with the variances of all rows' paired differences pooled: noise is
// much the same from row to row, and so known better than from one of them.
std::optional<Resolution> resolution_of(const Analysis& analysis) {
  std::optional<std::size_t> fewest;
  double squares = 0, degrees = 0;
  for (const Setting& setting : analysis.settings) {
    const Setting* reference = reference_of(analysis, setting);
    if (reference == nullptr) continue;
    const auto [ours, theirs] = pairs_of(setting, *reference);
    fewest = std::min(fewest.value_or(ours.size()), ours.size());
    std::vector<double> differences;
    for (std::size_t i = 0; i < ours.size(); ++i) differences.push_back(ours[i] - theirs[i]);
    const auto deviation = sample_deviation(differences);
    if (!deviation) continue;
    squares += static_cast<double>(ours.size() - 1) * *deviation * *deviation;
    degrees += static_cast<double>(ours.size() - 1);
  }
  if (!fewest) return std::nullopt;
  Resolution result{.seeds = *fewest};
  if (result.seeds < kFewestSeeds) return result;
  const auto n = static_cast<double>(result.seeds);
  if (squares > 0) result.difference = student_quantile(0.975, n - 1) * std::sqrt(squares / degrees / n);
  return result;
}

void add_contrasts(Analysis& analysis) {
  for (Setting& setting : analysis.settings) {
    if (const Setting* reference = reference_of(analysis, setting))
      setting.contrast = contrast(setting, *reference);
  }
}

void adjust_all(Analysis& analysis) {
  Questions questions;
  ask(questions, analysis);
  adjust(questions);
}

bool has_reference(const Analysis& analysis) {
  return std::any_of(analysis.settings.begin(), analysis.settings.end(), [&](const Setting& setting) {
    return setting.name == analysis.reference || setting.way == analysis.reference;
  });
}

// By budget, and at one from the best to the worst; what they are shares of last.
bool comes_first(const Analysis& analysis, const Setting& a, const Setting& b) {
  if (a.budget != b.budget) return a.budget.value_or(1) < b.budget.value_or(1);
  return is_better(*analysis.metric, a.mean, b.mean);
}

void sort_settings(Analysis& analysis) {
  const std::string& kind = analysis.study.kind;
  std::stable_sort(
      analysis.settings.begin(), analysis.settings.end(), [&](const Setting& a, const Setting& b) {
        if (kind == Study::kBudget) return comes_first(analysis, a, b);
        return kind == Study::kSuite ? a.cost.total(analysis.measure) < b.cost.total(analysis.measure)
                                     : a.at < b.at;
      });
}

std::string reference_name(const Study& study) {
  if (study.kind == Study::kSuite) return "static";
  if (study.kind == Study::kBudget) return ways::kConstant;
  return study.window > 0 ? "no window" : "deficit 0";
}

CostCorrelation correlate(const Analysis& analysis) {
  std::vector<double> costs, metrics;
  for (const Setting& setting : analysis.settings) {
    if (is_fp32(setting.schedule.highest())) continue;
    costs.push_back(setting.cost.total(analysis.measure));
    metrics.push_back(setting.mean);
  }
  CostCorrelation result{.settings = costs.size(), .rank = {}, .linear = {}};
  if (const auto r = spearman(costs, metrics))
    result.rank = Correlation{*r, spearman_interval(*r, costs.size())};
  if (const auto r = pearson(costs, metrics))
    result.linear = Correlation{*r, pearson_interval(*r, costs.size())};
  return result;
}

std::vector<SavingGroup> group_by_saving(const Analysis& analysis) {
  std::vector<SavingGroup> groups;
  for (const std::string name : {"large", "medium", "small"}) {
    SavingGroup group{.name = name, .settings = {}};
    std::vector<double> savings, means;
    for (const Setting& setting : analysis.settings) {
      if (setting.group != name) continue;
      group.settings.push_back(setting.name);
      means.push_back(setting.mean);
      if (setting.saving) savings.push_back(*setting.saving);
    }
    if (group.settings.empty()) continue;
    if (!savings.empty()) group.saving = mean(savings);
    group.mean = mean(means);
    groups.push_back(std::move(group));
  }
  return groups;
}

std::optional<CriticalPeriod> period_of_deficits(const Analysis& analysis) {
  for (const Setting& setting : analysis.settings) {
    if (does_damage(analysis, setting)) return CriticalPeriod{*setting.at, setting.contrast->difference};
  }
  return std::nullopt;
}

// Windows count from the earliest on, as long as each does damage and a later one does less. Damage that only
// grows with the start shows that less and less time is left to recover, and no critical period.
std::optional<CriticalPeriod> period_of_windows(const Analysis& analysis) {
  std::optional<CriticalPeriod> period;
  for (auto setting = analysis.settings.begin(); setting != analysis.settings.end(); ++setting) {
    if (setting->name == analysis.reference) continue;
    const bool early = std::any_of(setting + 1, analysis.settings.end(), [&](const Setting& later) {
      const Contrast gain = contrast(later, *setting);
      return gain.p.value_or(1) < kSignificant && is_better(*analysis.metric, gain.difference, 0);
    });
    if (!early || !does_damage(analysis, *setting)) break;
    period = {*setting->at + analysis.study.window, setting->contrast->difference};
  }
  return period;
}

}  // namespace

bool is_better(const Metric& metric, double a, double b) { return metric.higher_is_better ? a > b : a < b; }

int judged_bits(const Analysis& analysis, const Setting& setting) {
  const int asked = analysis.study.recipe.precision.eval_bits;
  return asked >= 0 ? asked : setting.schedule.last().forward;
}

bool ends_at_other_bits(const Analysis& analysis, const Setting& setting) {
  const Study& study = analysis.study;
  return study.window > 0 && setting.at && *setting.at + study.window >= study.recipe.training.steps &&
         judged_bits(analysis, setting) != setting.schedule.bits.low;
}

bool does_damage(const Analysis& analysis, const Setting& setting) {
  return setting.contrast && setting.contrast->p.value_or(1) < kSignificant &&
         is_better(*analysis.metric, 0, setting.contrast->difference);
}

const Setting* find_setting(const Analysis& analysis, const std::string& name) {
  for (const Setting& setting : analysis.settings) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

const Setting* find_at_budget(const Analysis& analysis, const std::string& way, double budget) {
  for (const Setting& setting : analysis.settings) {
    if (setting.budget == budget && setting.way == way) return &setting;
  }
  return nullptr;
}

const Setting* reference_of(const Analysis& analysis, const Setting& setting) {
  if (analysis.study.kind != Study::kBudget) {
    const Setting* reference = find_setting(analysis, analysis.reference);
    return reference == &setting ? nullptr : reference;
  }
  if (!setting.budget || setting.way == analysis.reference) return nullptr;
  return find_at_budget(analysis, analysis.reference, *setting.budget);
}

std::vector<const Setting*> winners(const Analysis& analysis) {
  const Setting* reference = find_setting(analysis, analysis.reference);
  std::vector<const Setting*> result;
  if (reference == nullptr) return result;
  for (const Setting& setting : analysis.settings) {
    if (setting.cost.total(analysis.measure) < reference->cost.total(analysis.measure) && setting.contrast &&
        is_better(*analysis.metric, setting.contrast->difference, 0))
      result.push_back(&setting);
  }
  std::sort(result.begin(), result.end(), [&](const Setting* a, const Setting* b) {
    return is_better(*analysis.metric, a->contrast->difference, b->contrast->difference);
  });
  return result;
}

Analysis analyse(const Study& study, const RunScan& scan, Judge judge, const CostMeasure& measure,
                 Weights weights) {
  if (study.kind == Study::kRangeTest)
    throw UserError(
        "this is the folder of a range test; what came out tells: lowtide range-test --study "
        "FOLDER/study.toml "
        "--out FOLDER");
  Analysis analysis;
  analysis.study = study;
  analysis.measure = measure;
  analysis.split = judge == Judge::kTest ? "test" : "held-out";
  analysis.weights = weights;
  const std::vector<Member> all = members(study);
  for (const Member& member : all) {
    const RunSummary* found = find_run(scan, member);
    if (found == nullptr) continue;
    const RunSummary run = weights == Weights::kBest ? at_best(*found) : *found;
    add_run(analysis, member, run, value_of(run, judge));
  }
  analysis.missing = left_out(all, scan);
  for (const ImpossibleSetting& one : study.impossible)
    analysis.missing.push_back({one.setting, "not possible: " + one.reason});
  if (analysis.settings.empty())
    throw UserError("no member of this study is finished yet; see `lowtide study status`");
  for (Setting& setting : analysis.settings) summarise_seeds(setting);
  for (Setting& setting : analysis.settings) setting.saving = saving_of(analysis, setting);
  analysis.reference = reference_name(study);
  if (!has_reference(analysis)) analysis.reference.clear();
  mark_front(analysis);
  add_contrasts(analysis);
  analysis.resolution = resolution_of(analysis);
  sort_settings(analysis);
  if (study.kind == Study::kBudget) {
    analysis.best_of_ten = best_of_ten(analysis);
    analysis.loops = loops_and_copies(analysis);
  }
  adjust_all(analysis);
  if (study.kind == Study::kCritical)
    analysis.period = study.window > 0 ? period_of_windows(analysis) : period_of_deficits(analysis);
  if (study.kind == Study::kSuite) {
    analysis.correlation = correlate(analysis);
    analysis.groups = group_by_saving(analysis);
  }
  return analysis;
}

void freeze(Analysis& analysis, const std::string& way, std::optional<double> budget) {
  if (analysis.study.kind != Study::kBudget)
    throw UserError(fmt::format("a study of kind {} has no ways to spend a budget, such as {}",
                                analysis.study.kind, lowtide::quoted(way)));
  std::vector<std::string> ways;
  for (const Setting& setting : analysis.settings) {
    if (!setting.contrast || !setting.budget || (budget && setting.budget != budget)) continue;
    if (std::find(ways.begin(), ways.end(), setting.way) == ways.end()) ways.push_back(setting.way);
    if (!equal_ignoring_case(setting.way, way)) continue;
    const std::size_t seeds = pairs_of(setting, *reference_of(analysis, setting)).ours.size();
    FrozenWay frozen{.budget = *setting.budget,
                     .from_reference = {setting.way, analysis.reference, seeds, *setting.contrast}};
    for (const BestOfTen& best : analysis.best_of_ten) {
      if (best.budget != setting.budget) continue;
      for (const WayContrast& one : best.ways) {
        if (one.way == setting.way) frozen.from_best = one;
      }
    }
    analysis.frozen.push_back(std::move(frozen));
  }
  if (analysis.frozen.empty())
    throw UserError(fmt::format("{} has no result{} to compare with constant{}; expected one of: {}",
                                lowtide::quoted(way), budget ? fmt::format(" at {}", *budget) : "",
                                did_you_mean(way, {ways.begin(), ways.end()}), fmt::join(ways, ", ")));
}

void adjust_together(std::vector<Analysis>& analyses) {
  Questions questions;
  for (Analysis& analysis : analyses) {
    if (analysis.study.kind != Study::kBudget)
      throw UserError(fmt::format(
          "a study of kind {} is analysed by itself; several are told together where all are of kind budget",
          analysis.study.kind));
    ask(questions, analysis);
    analysis.studies = analyses.size();
  }
  adjust(questions);
}

Judge judge_to_choose_by(const RunScan& scan) {
  const bool held_out =
      std::none_of(scan.runs.begin(), scan.runs.end(), [](const RunSummary& run) { return !run.valid; });
  return held_out ? Judge::kHeldOut : Judge::kTest;
}

}  // namespace lowtide
