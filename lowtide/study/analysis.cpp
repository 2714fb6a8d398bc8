#include "lowtide/study/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/cost/bit_operations.h"
#include "lowtide/schedule/cycles.h"

namespace lowtide {
namespace {

constexpr double kSignificant = 0.05;

std::string group_of(const ScheduleSpec& spec) {
  const CyclicSchedule* cyclic = spec.delay ? nullptr : find_cyclic(spec.name);
  return cyclic == nullptr ? "" : std::string(cyclic->group);
}

const RunSummary* find_run(const RunScan& scan, const Member& member) {
  const auto found = std::find_if(scan.runs.begin(), scan.runs.end(),
                                  [&](const RunSummary& run) { return run.name == member.name; });
  return found == scan.runs.end() ? nullptr : &*found;
}

// Members without a result with the reason that the scan found, and runs that are no members.
std::vector<SkippedFolder> left_out(const std::vector<Member>& all, const RunScan& scan) {
  std::vector<SkippedFolder> result;
  for (const Member& member : all) {
    if (find_run(scan, member) != nullptr) continue;
    const auto reason =
        std::find_if(scan.skipped.begin(), scan.skipped.end(),
                     [&](const SkippedFolder& skipped) { return skipped.folder.filename() == member.name; });
    result.push_back({member.name, reason == scan.skipped.end() ? "not started" : reason->reason});
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
  if (run.valid.is_null())
    throw UserError(fmt::format("{}: no items were held out to judge by", run.folder.string()));
  return run.valid.get<double>();
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
    const ScheduleSpec spec = schedule_of(member.recipe);
    setting = analysis.settings.insert(setting, Setting{.name = member.setting,
                                                        .schedule = spec,
                                                        .group = group_of(spec),
                                                        .at = member.at,
                                                        .by_seed = {}});
  }
  setting->by_seed[run.seed] = value;
  const auto seeds = static_cast<double>(setting->by_seed.size());
  setting->relative_cost += (run.relative_cost - setting->relative_cost) / seeds;
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
  setting.saving = 1 - setting.relative_cost / relative_cost(setting.schedule.highest());
}

void mark_front(Analysis& analysis) {
  const Metric& metric = *analysis.metric;
  for (Setting& setting : analysis.settings) {
    setting.on_front =
        std::none_of(analysis.settings.begin(), analysis.settings.end(), [&](const Setting& other) {
          const bool cheaper = other.relative_cost < setting.relative_cost,
                     better = is_better(metric, other.mean, setting.mean);
          return (cheaper && !is_better(metric, setting.mean, other.mean)) ||
                 (better && other.relative_cost <= setting.relative_cost);
        });
  }
}

// Runs of one seed share weights, order and augmentation: pairs take that part of the noise out.
Contrast contrast(const Setting& setting, const Setting& reference) {
  std::vector<double> ours, theirs;
  for (const auto& [seed, value] : setting.by_seed) {
    const auto other = reference.by_seed.find(seed);
    if (other == reference.by_seed.end()) continue;
    ours.push_back(value);
    theirs.push_back(other->second);
  }
  const bool paired = ours.size() >= 2;
  const auto test = paired ? paired_t_test(ours, theirs) : welch_t_test(values(setting), values(reference));
  if (!test)
    return {.difference = paired ? mean(ours) - mean(theirs) : setting.mean - reference.mean, .test = ""};
  return {.difference = test->difference,
          .test = paired ? fmt::format("paired t, {} seeds", ours.size()) : "Welch",
          .interval = test->interval,
          .p = test->p};
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
    costs.push_back(setting.relative_cost);
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
    for (const Setting& setting : analysis.settings) {
      if (setting.group != name) continue;
      group.settings.push_back(setting.name);
      group.saving += setting.saving;
      group.mean += setting.mean;
    }
    if (group.settings.empty()) continue;
    group.saving /= static_cast<double>(group.settings.size());
    group.mean /= static_cast<double>(group.settings.size());
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
    if (setting.relative_cost < reference->relative_cost && setting.contrast &&
        is_better(*analysis.metric, setting.contrast->difference, 0))
      result.push_back(&setting);
  }
  std::sort(result.begin(), result.end(), [&](const Setting* a, const Setting* b) {
    return is_better(*analysis.metric, a->contrast->difference, b->contrast->difference);
  });
  return result;
}

Analysis analyse(const Study& study, const RunScan& scan, Judge judge) {
  Analysis analysis;
  analysis.study = study;
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
  const bool suite = study.kind == Study::kSuite;
  analysis.reference = suite ? "static" : study.window > 0 ? "no window" : "deficit 0";
  mark_front(analysis);
  add_contrasts(analysis);
  std::stable_sort(analysis.settings.begin(), analysis.settings.end(),
                   [&](const Setting& a, const Setting& b) {
                     return suite ? a.relative_cost < b.relative_cost : a.at < b.at;
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
  const bool held_out = std::none_of(scan.runs.begin(), scan.runs.end(),
                                     [](const RunSummary& run) { return run.valid.is_null(); });
  return held_out ? Judge::kHeldOut : Judge::kTest;
}

}  // namespace lowtide
