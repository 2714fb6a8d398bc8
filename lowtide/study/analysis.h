#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lowtide/report/run_scan.h"
#include "lowtide/study/statistics.h"
#include "lowtide/study/study.h"
#include "lowtide/train/metric.h"

namespace lowtide {

// How far a setting lies from the one it is compared with: `static` in a suite, `constant` at the same budget in a budget
// study, the one without a deficit in a critical-period study.
struct Contrast {
  double difference = 0;  // of the metric: setting - reference
  std::string test;       // "paired t, 3 seeds", "Welch"; empty where the seeds allow none
  std::optional<Interval> interval{};
  // None from two seeds: a t test with one degree of freedom tells a difference only beyond 12.7 standard errors, of a noise
  // that it knows from one number.
  std::optional<double> unadjusted{};
  // Adjusted by Holm for all contrasts that answer the same question, of the study or of several.
  std::optional<double> p{};
};

constexpr std::size_t kFewestSeeds = 3;  // that a difference is told from noise by

// A schedule, or a deficit, over its seeds.
struct Setting {
  std::string name;
  ScheduleSpec schedule{};
  std::string group{};               // of saving: large, medium or small; empty outside the ten
  std::optional<std::int64_t> at{};  // critical: the deficit's length, or the window's start
  std::optional<double> budget{};    // budget, but for static at full cost
  std::string way{};                 // to spend it
  std::map<std::uint64_t, double> by_seed{};
  std::map<std::uint64_t, double> held_out{};  // of the runs that held items out
  std::set<int> judged_at{};                   // forward bits that its runs were evaluated at; 0: fp32
  double mean = 0;
  std::optional<double> deviation{};
  RunCost cost{};  // mean over seeds; bit operations differ for `progressive` alone
  // In the analysis' count, against static at the highest bits that occur. Of the actual count, where such a
  // static is in the study: how its layers ran only a run tells.
  std::optional<double> saving{};
  bool on_front = false;  // by the analysis' measure
  std::optional<Contrast> contrast{};
};

struct Correlation {
  double r = 0;
  std::optional<Interval> interval;
};

// Of the settings' mean metrics with their costs, fp32 left out: at a cost of 1, with all others below some
// 0.06, it would decide the linear one alone.
struct CostCorrelation {
  std::size_t settings = 0;
  std::optional<Correlation> rank, linear;
};

struct SavingGroup {
  std::string name;
  std::vector<std::string> settings;
  std::optional<double> saving{};  // means of the settings'
  double mean = 0;
};

// What the seeds can tell: a difference from the reference below `difference` has an interval around 0. By the
// settings' standard errors, pooled, before p is adjusted.
struct Resolution {
  std::size_t seeds = 0;               // shared with the reference, of the setting that has the fewest
  std::optional<double> difference{};  // none below kFewestSeeds, nor where nothing varies
};

// Where low precision does damage that lasts, by a difference that is told from noise (p < 0.05).
struct CriticalPeriod {
  std::int64_t steps =
      0;  // deficits: the shortest that does; windows: the end of the last early one that does
  double difference = 0;  // of that one
};

// A way to spend a budget against another.
struct WayContrast {
  std::string way, reference;
  std::size_t seeds = 0;  // that both have
  Contrast contrast{};
};

// The best of the ten at a budget against constant bits. On each seed it is the one that is best on all other seeds: the best of
// ten by chance alone would win on its own.
struct BestOfTen {
  double budget = 0;
  std::vector<std::uint64_t> seeds;  // that all have
  // Which of the ten is tested on a seed; none where the seeds are fewer than kFewestSeeds.
  std::map<std::uint64_t, std::string> picks{};
  std::string split{};  // what they were picked by: "held-out", or "test" where none were
  Contrast contrast{};
  std::vector<WayContrast> ways{};  // every other way against it
};

// A closed loop at a budget against its own bits: in another order, and of another seed's run.
struct LoopAndCopies {
  double budget = 0;
  std::vector<WayContrast> ways{};
};

// A way that was chosen before the study was run, at a budget: its p are adjusted over tasks, and over its budgets, alone.
struct FrozenWay {
  double budget = 0;
  WayContrast from_reference;
  std::optional<WayContrast> from_best{};  // of the ten, unless it is one of them
};

// Of a run: those after its last step, or those of its best evaluation (`keep-best`).
enum class Weights { kLast, kBest };

struct Analysis {
  Study study;
  const Metric* metric = nullptr;
  CostMeasure measure;               // what is cheap
  std::string split;                 // what the metric is of: "test" or "held-out"
  Weights weights = Weights::kLast;  // and of which weights
  std::string reference;  // the setting that others are compared with; empty where it has no result
  std::vector<Setting>
      settings;  // suite: from cheap to dear; budget: by budget, best first; critical: by `at`, the one without first
  std::optional<Resolution> resolution{};  // where something is compared with the reference
  CostCorrelation correlation;             // suite
  std::vector<SavingGroup> groups;         // suite
  std::optional<CriticalPeriod> period;
  std::vector<BestOfTen> best_of_ten;  // budget: one for each at which the ten have results
  std::vector<LoopAndCopies> loops;    // budget: one for each at which a loop and a copy of it have results
  std::vector<FrozenWay> frozen;       // budget: where one was
  std::size_t studies = 1;             // that p are adjusted for
  std::vector<SkippedFolder> missing;  // members without a result, and what else was skipped
};

// Those that are better than static at less cost, best first.
std::vector<const Setting*> winners(const Analysis& analysis);
const Setting* find_setting(const Analysis& analysis, const std::string& name);
// The one that spends this budget in this way; null if there is none.
const Setting* find_at_budget(const Analysis& analysis, const std::string& way, double budget);
bool is_better(const Metric& metric, double a, double b);

// What a setting is compared with: nothing for that one itself, for static at full cost beside budgets, and where that
// one has no result.
const Setting* reference_of(const Analysis& analysis, const Setting& setting);

// The forward bits at which a setting's networks were judged.
int judged_bits(const Analysis& analysis, const Setting& setting);
// Whether a window ends with training, and its networks are judged at bits that they never saw again.
bool ends_at_other_bits(const Analysis& analysis, const Setting& setting);

// Whether a setting is worse than the one it is compared with, told from the noise of seeds.
bool does_damage(const Analysis& analysis, const Setting& setting);

enum class Judge { kTest, kHeldOut };

// UserError where no member is finished, or, judged by held-out items, where none were held out, or, by its best weights,
// where a run kept none.
Analysis analyse(const Study& study, const RunScan& scan, Judge judge = Judge::kTest,
                 const CostMeasure& measure = {}, Weights weights = Weights::kLast);

// Takes a way as frozen beforehand, at all budgets or at one. UserError where it has no result to compare; its p are adjusted by
// adjust_together.
void freeze(Analysis& analysis, const std::string& way, std::optional<double> budget = {});

// Of budget studies, of one task or several: p of each question are adjusted over all of them. UserError for studies of other
// kinds.
void adjust_together(std::vector<Analysis>& analyses);

// What a choice may be made by: the held-out items, where every run has them; else the test set.
Judge judge_to_choose_by(const RunScan& scan);

// "0.018", "< 0.001"
std::string p_text(double p);

// "told from noise, p 0.018"; or why not.
std::string verdict(const Contrast& contrast, std::size_t seeds);

std::string to_markdown(const Analysis& analysis);
std::string to_csv(const Analysis& analysis);
Json to_json(const Analysis& analysis);

}  // namespace lowtide
