#include "lowtide/study/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/cost/summary.h"
#include "lowtide/schedule/cycles.h"

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
                                                        .by_seed = {}});
  }
  setting->by_seed[run.seed] = value;
  move_mean(setting->cost, run.cost, setting->by_seed.size());
}

std::vector<double> values(const Setting& setting) {
  std::vector<double> result;
  for (const auto& [seed, value] : setting.by_seed) result.push_back(value);
  return result;
}

void summarise_seeds(Setting& setting) {
  const std::vector<double> all = values(setting);
  setting.mean = mean(all);
  setting.deviation = sample_deviation(all);
}

std::optional<double> saving_of(const Analysis& analysis, const Setting& setting) {
  const CostCount count = analysis.measure.count;
  const Bits peak = peak_bits(setting.schedule);
  const double cost = setting.cost.relative(count);
  if (count == CostCount::kPaper) return 1 - cost / relative_cost(peak);
  for (const Setting& other : analysis.settings) {
    if (to_string(other.schedule) == static_line(peak)) return 1 - cost / other.cost.relative(count);
  }
  return std::nullopt;
}

void mark_front(Analysis& analysis) {
  std::vector<CostAndValue> points;
  for (const Setting& setting : analysis.settings)
    points.push_back({setting.cost.total(analysis.measure), setting.mean});
  const std::vector<bool> front = pareto_front(points, *analysis.metric);
  for (std::size_t i = 0; i < front.size(); ++i) analysis.settings[i].on_front = front[i];
}

// The values of the seeds that both have.
struct Pairs {
  std::vector<double> ours, theirs;
};

Pairs pairs_of(const Setting& setting, const Setting& reference) {
  Pairs pairs;
  for (const auto& [seed, value] : setting.by_seed) {
    const auto other = reference.by_seed.find(seed);
    if (other == reference.by_seed.end()) continue;
    pairs.ours.push_back(value);
    pairs.theirs.push_back(other->second);
  }
  return pairs;
}

// Runs of one seed share weights, order and augmentation: pairs take that part of the noise out.
Contrast contrast(const Setting& setting, const Setting& reference) {
  const auto [ours, theirs] = pairs_of(setting, reference);
  const bool paired = ours.size() >= 2;
  const auto test = paired ? paired_t_test(ours, theirs) : welch_t_test(values(setting), values(reference));
  if (!test)
    return {.difference = paired ? mean(ours) - mean(theirs) : setting.mean - reference.mean, .test = ""};
  const std::size_t seeds = paired ? ours.size() : std::min(setting.by_seed.size(), reference.by_seed.size());
  return {.difference = test->difference,
          .test = paired ? fmt::format("paired t, {} seeds", ours.size()) : "Welch",
          .interval = test->interval,
          .p = seeds >= kFewestSeeds ? std::optional(test->p) : std::nullopt};
}

// What the fewest seeds of a row can tell, with the variances of all rows' paired differences pooled: noise is
// much the same from row to row, and so known better than from one of them.
std::optional<Resolution> resolution_of(const Analysis& analysis) {
  const Setting* reference = find_setting(analysis, analysis.reference);
  if (reference == nullptr || analysis.settings.size() < 2) return std::nullopt;
  Resolution result{.seeds = reference->by_seed.size()};
  double squares = 0, degrees = 0;
  for (const Setting& setting : analysis.settings) {
    if (&setting == reference) continue;
    const auto [ours, theirs] = pairs_of(setting, *reference);
    result.seeds = std::min(result.seeds, ours.size());
    std::vector<double> differences;
    for (std::size_t i = 0; i < ours.size(); ++i) differences.push_back(ours[i] - theirs[i]);
    const auto deviation = sample_deviation(differences);
    if (!deviation) continue;
    squares += static_cast<double>(ours.size() - 1) * *deviation * *deviation;
    degrees += static_cast<double>(ours.size() - 1);
  }
  if (result.seeds < kFewestSeeds) return result;
  const auto n = static_cast<double>(result.seeds);
  if (squares > 0) result.difference = student_quantile(0.975, n - 1) * std::sqrt(squares / degrees / n);
  return result;
}

void add_contrasts(Analysis& analysis) {
  const Setting* reference = find_setting(analysis, analysis.reference);
  if (reference == nullptr) return analysis.reference.clear();
  std::vector<double> p;
  for (Setting& setting : analysis.settings) {
    if (setting.name == analysis.reference) continue;
    setting.contrast = contrast(setting, *reference);
    if (setting.contrast->p) p.push_back(*setting.contrast->p);
  }
  const std::vector<double> adjusted = holm(p);
  auto next = adjusted.begin();
  for (Setting& setting : analysis.settings) {
    if (setting.contrast && setting.contrast->p) setting.contrast->p = *next++;
  }
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

Analysis analyse(const Study& study, const RunScan& scan, Judge judge, const CostMeasure& measure) {
  if (study.kind == Study::kRangeTest)
    throw UserError(
        "this is the folder of a range test; what came out tells: lowtide range-test --study "
        "FOLDER/study.toml "
        "--out FOLDER");
  Analysis analysis;
  analysis.study = study;
  analysis.measure = measure;
  analysis.split = judge == Judge::kTest ? "test" : "held-out";
  const std::vector<Member> all = members(study);
  for (const Member& member : all) {
    if (const RunSummary* run = find_run(scan, member))
      add_run(analysis, member, *run, value_of(*run, judge));
  }
  analysis.missing = left_out(all, scan);
  if (analysis.settings.empty())
    throw UserError("no member of this study is finished yet; see `lowtide study status`");
  for (Setting& setting : analysis.settings) summarise_seeds(setting);
  for (Setting& setting : analysis.settings) setting.saving = saving_of(analysis, setting);
  const bool suite = study.kind == Study::kSuite;
  analysis.reference = suite ? "static" : study.window > 0 ? "no window" : "deficit 0";
  mark_front(analysis);
  add_contrasts(analysis);
  analysis.resolution = resolution_of(analysis);
  std::stable_sort(analysis.settings.begin(), analysis.settings.end(),
                   [&](const Setting& a, const Setting& b) {
                     return suite ? a.cost.total(measure) < b.cost.total(measure) : a.at < b.at;
                   });
  if (!suite) {
    analysis.period = study.window > 0 ? period_of_windows(analysis) : period_of_deficits(analysis);
    return analysis;
  }
  analysis.correlation = correlate(analysis);
  analysis.groups = group_by_saving(analysis);
  return analysis;
}

Judge judge_to_choose_by(const RunScan& scan) {
  const bool held_out =
      std::none_of(scan.runs.begin(), scan.runs.end(), [](const RunSummary& run) { return !run.valid; });
  return held_out ? Judge::kHeldOut : Judge::kTest;
}

}  // namespace lowtide
