#include "lowtide/study/analysis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "lowtide/cost/bit_operations.h"
#include "lowtide/cost/summary.h"
#include "lowtide/study/folder.h"
#include "tests/io/scratch.h"
#include "tests/study/fake_runs.h"

namespace lowtide {
namespace {

// Few operations in double precision.
constexpr double kTolerance = 1e-12;

Study suite_of(const std::vector<std::string>& schedules, std::int64_t seeds) {
  Study study;
  study.kind = Study::kSuite;
  study.schedules = schedules;
  study.seeds = seeds;
  study.recipe.data.dir = "data";
  study.recipe.training.steps = 1000;
  complete(study);
  return study;
}

// Of a network with 1,000 GBitOps in fp32, a tenth of them in a layer that stays in fp32; slower where it is
// cheaper.
RunCost cost_of(const Recipe& recipe) {
  const double paper = summarise(schedule_of(recipe.precision), recipe.training.steps).relative_cost;
  const double actual = 0.9 * paper + 0.1;
  return {.relative_paper = paper,
          .relative_actual = actual,
          .gbitops_paper = 1000 * paper,
          .gbitops_actual = 1000 * actual,
          .seconds = 10 / paper};
}

// Finished runs of a study with the metric that `value` gives, at the cost of their schedules.
RunScan runs_of(const Study& study, const std::string& metric,
                const std::function<double(const Member&)>& value) {
  RunScan scan;
  for (const Member& member : members(study)) {
    RunSummary run{
        .folder = member.name, .name = member.name, .metric = metric, .seed = member.recipe.training.seed};
    run.test = value(member);
    run.valid = run.test / 2;
    run.cost = cost_of(member.recipe);
    run.steps = member.recipe.training.steps;
    scan.runs.push_back(run);
  }
  return scan;
}

double by_table(const Member& member, const std::map<std::string, std::vector<double>>& table) {
  return table.at(member.setting).at(member.recipe.training.seed - 1);
}

const std::map<std::string, std::vector<double>> kAccuracies{
    {"RR", {0.80, 0.81, 0.82}},     {"CR", {0.85, 0.87, 0.89}},   {"ER", {0.83, 0.83, 0.86}},
    {"static", {0.84, 0.85, 0.86}}, {"fp32", {0.90, 0.91, 0.92}},
};

Analysis accuracies(const CostMeasure& measure = {}) {
  const Study study = suite_of({"RR,CR,ER,static,fp32"}, 3);
  const auto accuracy = [](const Member& m) { return by_table(m, kAccuracies); };
  return analyse(study, runs_of(study, "accuracy", accuracy), Judge::kTest, measure);
}

std::vector<std::string> front_of(const Analysis& analysis) {
  std::vector<std::string> front;
  for (const Setting& setting : analysis.settings) {
    if (setting.on_front) front.push_back(setting.name);
  }
  return front;
}

TEST(Analysis, SeedsAreSummarised) {
  const Analysis analysis = accuracies();
  const Setting* cr = find_setting(analysis, "CR");
  ASSERT_NE(cr, nullptr);
  EXPECT_NEAR(cr->mean, 0.87, kTolerance);
  EXPECT_NEAR(*cr->deviation, 0.02, kTolerance);  // of -0.02, 0, 0.02
  EXPECT_EQ(cr->group, "medium");
  EXPECT_NEAR(find_setting(analysis, "fp32")->cost.relative_actual, 1, kTolerance);
  // From cheap to dear.
  std::vector<std::string> order;
  for (const Setting& setting : analysis.settings) order.push_back(setting.name);
  EXPECT_EQ(order, (std::vector<std::string>{"RR", "CR", "ER", "static", "fp32"}));
}

TEST(Analysis, TheFrontLeavesOutWhatIsDearerAndWorse) {
  EXPECT_EQ(front_of(accuracies()), (std::vector<std::string>{"RR", "CR", "fp32"}));
  // fp32 is the fastest here, and the best.
  const Analysis by_time = accuracies({.axis = CostAxis::kTime});
  EXPECT_EQ(front_of(by_time), (std::vector<std::string>{"fp32"}));
  EXPECT_EQ(by_time.settings[0].name, "fp32");
  EXPECT_TRUE(contains(to_markdown(by_time), "| time | accuracy % |", "Front: by time",
                       "| fp32 |  | 1000.0 | 1.0000 | 0.0 % | 10 s | 91.00"));
}

TEST(Analysis, TheCountIsNamedAndChosen) {
  const double cr = summarise(parse_schedule("CR 3:8 n=8 grad=8"), 1000).relative_cost;
  const Analysis actual = accuracies(), paper = accuracies({.count = CostCount::kPaper});
  // Static has 0.9 · 0.0625 + 0.1 of fp32's bit operations.
  EXPECT_NEAR(*find_setting(actual, "CR")->saving, 1 - (0.9 * cr + 0.1) / (0.9 * 0.0625 + 0.1), kTolerance);
  EXPECT_NEAR(*find_setting(paper, "CR")->saving, 1 - cr / 0.0625, kTolerance);
  EXPECT_TRUE(contains(to_markdown(actual), "| GBitOps, actual | cost |",
                       "| static |  | 156.2 | 0.1562 | 0.0 % |", "actual: each layer at the bits it ran at",
                       "Front: by bit operations (actual)", "% of its bit operations (actual)"));
  EXPECT_TRUE(contains(to_markdown(paper), "| GBitOps, paper | cost |",
                       "| static |  | 62.5 | 0.0625 | 0.0 % |", "paper: every layer at the scheduled bits"));
  EXPECT_EQ(to_json(paper).at("count"), "paper");
}

TEST(Analysis, SavingIsAgainstTheHighestBitsThatOccur) {
  const std::string falling = "delayed 377 at=8 static 5 grad=8";
  for (const bool with_static : {true, false}) {
    std::vector<std::string> schedules{falling, "fp32"};
    if (with_static) schedules.emplace_back("static");
    const Study study = suite_of(schedules, 1);
    const RunScan scan = runs_of(study, "accuracy", [](const Member&) { return 0.5; });
    const Analysis paper = analyse(study, scan, Judge::kTest, {.count = CostCount::kPaper});
    // 377 steps at 192, 623 at 105.
    const double share = (377 * 192 + 623 * 105) / (1000.0 * 192);
    EXPECT_NEAR(*find_setting(paper, falling)->saving, 1 - share, kTolerance);
    // How the layers of a static 8 would run only a run of it tells.
    const Analysis actual = analyse(study, scan);
    EXPECT_EQ(find_setting(actual, falling)->saving.has_value(), with_static);
    EXPECT_TRUE(find_setting(actual, "fp32")->saving);
    EXPECT_TRUE(contains(to_markdown(actual), with_static ? " % |" : " |  | 50.00 | 1 |"));
  }
}

TEST(Analysis, ARunOfAnotherLengthIsNotCounted) {
  const Study study = suite_of({"CR,static"}, 2);
  RunScan scan = runs_of(study, "accuracy", [](const Member&) { return 0.5; });
  scan.runs[0].steps = 60;
  const Analysis analysis = analyse(study, scan);
  EXPECT_EQ(find_setting(analysis, "CR")->by_seed.size(), 1u);
  EXPECT_TRUE(contains(to_markdown(analysis), "- CR-seed1: has 60 steps, not the study's 1000"));
}

TEST(Analysis, TwoSeedsTellNothingFromNoise) {
  const Study study = suite_of({"CR,static"}, 2);
  // Far apart, and nearly the same in both seeds: t is 200 with one degree of freedom, p 0.003.
  const Analysis two = analyse(study, runs_of(study, "accuracy", [](const Member& m) {
                                 const double noise = 0.0005 * static_cast<double>(m.recipe.training.seed);
                                 return m.setting == "CR" ? 0.85 + 2 * noise : 0.80 + noise;
                               }));
  const Contrast& contrast = *find_setting(two, "CR")->contrast;
  EXPECT_TRUE(contrast.interval);
  EXPECT_FALSE(contrast.p);
  EXPECT_EQ(two.resolution->seeds, 2u);
  EXPECT_FALSE(two.resolution->difference);
  EXPECT_TRUE(contains(to_markdown(two), "2 shared seeds tell no difference from noise",
                       "one degree of freedom", "too few seeds to tell it from noise"));
  EXPECT_FALSE(contains(to_markdown(two), "told from noise, p"));
}

TEST(Analysis, SaysWhatTheSeedsCanTell) {
  const Analysis analysis = accuracies();
  // Paired differences from static: RR and fp32 do not vary, CR 0.01, 0.02, 0.03 and ER -0.01, -0.02, 0 have a
  // variance of 1e-4: over four rows 5e-5, of a mean of three 5e-5 / 3. t(0.975) of 2 degrees is 4.302652730.
  ASSERT_TRUE(analysis.resolution && analysis.resolution->difference);
  EXPECT_EQ(analysis.resolution->seeds, 3u);
  EXPECT_NEAR(*analysis.resolution->difference, 4.302652730 * std::sqrt(5e-5 / 3), 1e-10);
  EXPECT_TRUE(
      contains(to_markdown(analysis), "3 seeds cannot tell a difference below 1.76 points from noise"));
}

TEST(Analysis, WinnersAreBetterAndCheaperThanStatic) {
  const Analysis analysis = accuracies();
  const auto best = winners(analysis);
  ASSERT_EQ(best.size(), 1u);  // fp32 is better, but dearer
  EXPECT_EQ(best[0]->name, "CR");
  const Contrast& contrast = *best[0]->contrast;
  EXPECT_NEAR(contrast.difference, 0.02, kTolerance);
  EXPECT_EQ(contrast.test, "paired t, 3 seeds");
  // Differences 0.01, 0.02, 0.03: t = 0.02 / (0.01 / sqrt 3) = 3.4641 with 2 degrees of freedom, where p has
  // the closed form 1 - t / sqrt(t² + 2) = 0.0741799; Holm multiplies by the number of p values not below it.
  const double p = 1 - std::sqrt(12.0) / std::sqrt(14.0);
  const double fp32_shift = 0.06;
  EXPECT_NEAR(find_setting(analysis, "fp32")->contrast->difference, fp32_shift, kTolerance);
  EXPECT_FALSE(find_setting(analysis, "fp32")->contrast->p);  // the same in every seed: no noise to judge by
  // RR is 0.04 lower in every seed: none either. ER: -0.01, -0.02, 0, t = -1.732, p = 1 - sqrt(3 / 5) =
  // 0.2254.
  EXPECT_FALSE(find_setting(analysis, "RR")->contrast->p);
  EXPECT_NEAR(*contrast.p, 2 * p, 1e-10);
  EXPECT_NEAR(*find_setting(analysis, "ER")->contrast->p, 1 - std::sqrt(0.6), 1e-10);
  // 0.02 ± 4.302652730 · 0.01 / sqrt 3
  EXPECT_NEAR(contrast.interval->low, 0.02 - 4.302652730 * 0.01 / std::sqrt(3.0), 1e-10);
}

TEST(Analysis, CorrelationIsOverQuantisedSchedules) {
  const Analysis analysis = accuracies();
  ASSERT_TRUE(analysis.correlation.rank && analysis.correlation.linear);
  EXPECT_EQ(analysis.correlation.settings, 4u);
  // Costs rise RR < CR < ER < static; means 0.81, 0.87, 0.84, 0.85 have the ranks 1, 4, 2, 3: rho = 1 - 6 · 6
  // / 60.
  EXPECT_NEAR(analysis.correlation.rank->r, 0.4, kTolerance);
  EXPECT_TRUE(contains(to_markdown(analysis), "- rank (Spearman) 0.40, 95 % [", ": not told from none"));
}

TEST(Analysis, TheDirectionOfACorrelationIsSaidInWords) {
  const Study study = suite_of({"all"}, 1);
  // Dearer by 0.01 is higher by 0.1, but for one that spoils the perfect correlation.
  const auto rising = [](const Member& m) {
    return 10 * summarise(schedule_of(m.recipe.precision), 1000).relative_cost -
           (m.setting == "CT" ? 0.02 : 0);
  };
  const Analysis up = analyse(study, runs_of(study, "accuracy", rising));
  EXPECT_GT(up.correlation.linear->interval->low, 0.5);
  EXPECT_TRUE(contains(to_markdown(up), "dearer is better"));
  EXPECT_TRUE(contains(to_markdown(analyse(study, runs_of(study, "perplexity", rising))), "dearer is worse"));
}

TEST(Analysis, LowerIsBetterForPerplexity) {
  const Study study = suite_of({"RR,CR,static"}, 2);
  const std::map<std::string, std::vector<double>> table{
      {"RR", {90, 91}}, {"CR", {80, 82.5}}, {"static", {85, 86}}};
  const Analysis analysis =
      analyse(study, runs_of(study, "perplexity", [&](const Member& m) { return by_table(m, table); }));
  const auto best = winners(analysis);
  ASSERT_EQ(best.size(), 1u);
  EXPECT_EQ(best[0]->name, "CR");
  EXPECT_LT(best[0]->contrast->difference, 0);
  EXPECT_TRUE(find_setting(analysis, "RR")->on_front);  // the cheapest
  EXPECT_TRUE(find_setting(analysis, "CR")->on_front);
  EXPECT_FALSE(find_setting(analysis, "static")->on_front);
  EXPECT_TRUE(
      contains(to_markdown(analysis), "perplexity, lower is better", "| 81.25 ± 1.77 |", "- CR: -4.25 at "));
}

TEST(Analysis, GroupsAreThoseOfThePaper) {
  const Study study = suite_of({"all"}, 1);
  const auto accuracy = [](const Member& m) { return m.setting == "RR" ? 0.6 : 0.8; };
  const Analysis analysis =
      analyse(study, runs_of(study, "accuracy", accuracy), Judge::kTest, {.count = CostCount::kPaper});
  ASSERT_EQ(analysis.groups.size(), 3u);
  EXPECT_EQ(analysis.groups[0].settings, (std::vector<std::string>{"RR", "RTH"}));
  EXPECT_NEAR(analysis.groups[0].mean, 0.7, kTolerance);
  EXPECT_NEAR(*analysis.groups[0].saving, 0.601, 5e-3);  // 60.1 % at n = 8, in 1000 steps
  EXPECT_EQ(analysis.groups[1].settings.size(), 6u);
  EXPECT_EQ(analysis.groups[2].settings.size(), 2u);
}

TEST(Analysis, OneSeedHasNoTest) {
  const Study study = suite_of({"CR,static"}, 1);
  const Analysis analysis = analyse(
      study, runs_of(study, "accuracy", [](const Member& m) { return m.setting == "CR" ? 0.9 : 0.8; }));
  const Setting* cr = find_setting(analysis, "CR");
  EXPECT_FALSE(cr->deviation);
  EXPECT_FALSE(cr->contrast->p);
  EXPECT_NEAR(cr->contrast->difference, 0.1, kTolerance);
  EXPECT_TRUE(
      contains(to_markdown(analysis), "1 shared seed tells no difference from noise", "- CR: +10.00 at"));
}

TEST(Analysis, SeedsThatAreNotSharedAreComparedByWelch) {
  const Study study = suite_of({"CR,static"}, 4);
  RunScan scan = runs_of(study, "accuracy", [](const Member& m) {
    return (m.setting == "CR" ? 0.9 : 0.8) + 0.01 * static_cast<double>(m.recipe.training.seed % 2);
  });
  std::erase_if(scan.runs,
                [](const RunSummary& run) { return run.name.starts_with("CR") == (run.seed > 2); });
  const Analysis analysis = analyse(study, scan);
  EXPECT_EQ(find_setting(analysis, "CR")->contrast->test, "Welch");
  EXPECT_FALSE(find_setting(analysis, "CR")->contrast->p) << "two seeds on either side";
  EXPECT_NEAR(find_setting(analysis, "CR")->contrast->difference, 0.1, kTolerance);
  EXPECT_EQ(analysis.missing.size(), 4u);
}

TEST(Analysis, WhatIsMissingIsNamed) {
  const Study study = suite_of({"CR,static"}, 1);
  RunScan scan = runs_of(study, "accuracy", [](const Member&) { return 0.5; });
  scan.runs.pop_back();  // static
  scan.runs.push_back({.folder = "elsewhere", .name = "elsewhere", .metric = "accuracy"});
  scan.skipped = {{"x/static-seed1", "is not finished"}, {"x/notes", "not a run folder"}};
  const Analysis analysis = analyse(study, scan);
  ASSERT_EQ(analysis.missing.size(), 3u);
  EXPECT_TRUE(analysis.reference.empty());
  EXPECT_TRUE(contains(to_markdown(analysis), "- static-seed1: is not finished\n",
                       "- elsewhere: not a member", "- x/notes: not a run folder", "`static` has no result"));
  EXPECT_TRUE(
      contains(user_error([&] { analyse(study, RunScan{}); }), "no member of this study is finished"));
}

TEST(Analysis, MetricsMustAgree) {
  const Study study = suite_of({"CR,static"}, 1);
  RunScan scan = runs_of(study, "accuracy", [](const Member&) { return 0.5; });
  scan.runs[1].metric = "loss";
  EXPECT_TRUE(contains(user_error([&] { analyse(study, scan); }), "its metric is loss"));
}

TEST(Analysis, JudgedByHeldOutItemsWhereThereAreSome) {
  const Study study = suite_of({"CR"}, 1);
  RunScan scan = runs_of(study, "accuracy", [](const Member&) { return 0.5; });
  EXPECT_EQ(judge_to_choose_by(scan), Judge::kHeldOut);
  EXPECT_NEAR(analyse(study, scan, Judge::kHeldOut).settings.at(0).mean, 0.25, kTolerance);
  scan.runs[0].valid = std::nullopt;
  EXPECT_EQ(judge_to_choose_by(scan), Judge::kTest);
  EXPECT_TRUE(contains(user_error([&] { analyse(study, scan, Judge::kHeldOut); }), "held out"));
}

TEST(Analysis, ItsTitleSaysWhatAStepIs) {
  Study study = suite_of({"CR"}, 1);
  const auto title_of = [](const Study& of) {
    return to_markdown(analyse(of, runs_of(of, "accuracy", [](const Member&) { return 0.5; })));
  };
  EXPECT_TRUE(contains(title_of(study), "steps of 128, bits"));
  study.recipe.data.format = "ogb";
  EXPECT_TRUE(contains(title_of(study), "steps of the whole graph, bits"));
  study.recipe.data.fan_out = {5, 5};
  EXPECT_TRUE(contains(title_of(study), "steps of 128, bits"));
}

TEST(Analysis, JudgedByTheBestWeightsWhereRunsKeptThem) {
  const Study study = suite_of({"CR"}, 1);
  RunScan scan = runs_of(study, "accuracy", [](const Member&) { return 0.5; });
  const auto by_best = [&](Judge judge) { return analyse(study, scan, judge, {}, Weights::kBest); };
  EXPECT_TRUE(contains(user_error([&] { by_best(Judge::kTest); }), "kept no best weights", "keep-best"));
  scan.runs[0].best = RunResult::Best{.step = 7, .valid = 0.4, .test = {.metric = 0.75}};
  EXPECT_EQ(by_best(Judge::kTest).settings.at(0).mean, 0.75);
  EXPECT_EQ(by_best(Judge::kHeldOut).settings.at(0).mean, 0.4);
  EXPECT_EQ(analyse(study, scan).settings.at(0).mean, 0.5);
  EXPECT_TRUE(contains(to_markdown(by_best(Judge::kTest)), "test accuracy of each run's best weights, higher is better"));
  EXPECT_EQ(to_json(by_best(Judge::kTest)).at("weights"), "best");
  EXPECT_EQ(to_json(analyse(study, scan)).at("weights"), "last");
}

TEST(Analysis, CsvAndJsonHoldWhatTheTableHolds) {
  const Study study = suite_of({"CR", "progressive 3,4,6,8 grad=8", "static"}, 2);
  RunScan scan = runs_of(study, "accuracy", [](const Member& m) {
    return 0.5 + 0.01 * static_cast<double>(m.recipe.training.seed);
  });
  const Analysis analysis = analyse(study, scan);
  const std::string csv = to_csv(analysis);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);
  EXPECT_TRUE(contains(csv, ",\"progressive 3,4,6,8 grad=8 ", "\nstatic,static 8 grad=8,,,2,0.515,"));
  const Json json = to_json(analysis);
  EXPECT_EQ(json.at("settings").size(), 3u);
  EXPECT_EQ(json.at("metric"), "accuracy");
  EXPECT_EQ(json.at("settings")[0].at("seeds").size(), 2u);
  EXPECT_EQ(Json::parse(json.dump()), json);
}

Study critical_of(const std::vector<std::int64_t>& deficits, std::int64_t window,
                  const std::vector<std::int64_t>& starts) {
  Study study;
  study.kind = Study::kCritical;
  study.deficits = deficits;
  study.window = window;
  study.starts = starts;
  study.recipe.data.dir = "data";
  study.recipe.training.steps = 1000;
  complete(study);
  return study;
}

// Noise that differs between settings and seeds, so that pairs do not all differ by the same.
double noise(const Member& member) {
  const std::int64_t factor = member.at ? *member.at / 100 + 2 : 1;
  const auto seed = static_cast<std::int64_t>(member.recipe.training.seed);
  return 0.0005 * static_cast<double>(factor * seed * seed % 7);
}

TEST(Analysis, TheCriticalPeriodOfDeficitsIsTheShortestThatDoesDamage) {
  const Study study = critical_of({0, 100, 200, 400}, 0, {});
  const Analysis analysis = analyse(study, runs_of(study, "accuracy", [](const Member& m) {
                                      return 0.9 + noise(m) - (*m.at >= 200 ? 0.1 : 0);
                                    }));
  ASSERT_TRUE(analysis.period);
  EXPECT_EQ(analysis.period->steps, 200);
  EXPECT_NEAR(analysis.period->difference, -0.1, 0.002);
  EXPECT_TRUE(contains(to_markdown(analysis), "low precision in the first 200 steps does damage that lasts"));
}

TEST(Analysis, NoPeriodWhereNothingIsLost) {
  const Study study = critical_of({0, 100, 200}, 0, {});
  const Analysis analysis = analyse(study, runs_of(study, "accuracy", [](const Member& m) {
                                      return 0.9 + noise(m) + (*m.at > 0 ? 0.1 : 0);
                                    }));
  EXPECT_FALSE(analysis.period);  // it differs, but for the better
  EXPECT_TRUE(contains(to_markdown(analysis), "No deficit did damage"));
  Study fewer = study;
  fewer.seeds = 2;
  EXPECT_TRUE(
      contains(to_markdown(analyse(fewer, runs_of(fewer, "accuracy", [](const Member&) { return 0.5; }))),
               "so few seeds cannot tell"));
  const Analysis perplexity = analyse(study, runs_of(study, "perplexity", [](const Member& m) {
                                        return 0.9 + noise(m) + (*m.at > 0 ? 0.1 : 0);
                                      }));
  EXPECT_TRUE(perplexity.period);  // the same numbers are worse here
}

TEST(Analysis, WindowsCountFromTheFirst) {
  const Study study = critical_of({}, 100, {0, 200, 400, 900});
  const auto analysis_where = [&](const std::set<std::int64_t>& harmful) {
    return analyse(study, runs_of(study, "accuracy", [&](const Member& m) {
                     return 0.9 + noise(m) - (m.at && harmful.contains(*m.at) ? 0.1 : 0);
                   }));
  };
  EXPECT_EQ(analysis_where({0, 200}).period->steps, 300);
  EXPECT_EQ(analysis_where({0, 900}).period->steps, 100);  // the end is another matter: no time to recover
  EXPECT_FALSE(analysis_where({900}).period);
  EXPECT_EQ(analysis_where({0}).settings.at(0).name, "no window");
}

TEST(Analysis, AWindowThatEndsWithTrainingIsJudgedAtBitsItNeverSawAgain) {
  const std::string note =
      "To the end: the window ends with training, at 3 bits, and the network is judged at 8 bits, which it "
      "never saw again.";
  const auto analysis_of = [](const Study& study) {
    return analyse(study, runs_of(study, "accuracy", [](const Member& m) { return 0.9 + noise(m); }));
  };
  const Analysis analysis = analysis_of(critical_of({}, 100, {0, 899, 900}));
  const std::string text = to_markdown(analysis);
  EXPECT_TRUE(contains(text, note, "\n| 0 | ", "\n| 899 | ", "\n| 900 to the end | ", "900 to the end │"));
  const Json settings = to_json(analysis).at("settings");
  ASSERT_EQ(settings.size(), 4u);
  for (const Json& setting : settings)
    EXPECT_EQ(setting.at("ends_at_other_bits"), setting.at("setting") == "window 900");

  std::istringstream csv(to_csv(analysis));
  std::string line;
  std::getline(csv, line);
  EXPECT_TRUE(line.ends_with(",ends_at_other_bits"));
  while (std::getline(csv, line))
    EXPECT_TRUE(line.ends_with(line.starts_with("window 900,") ? ",1" : ",0")) << line;
  EXPECT_FALSE(contains(to_markdown(analysis_of(critical_of({}, 100, {0, 899}))), "to the end"));
  EXPECT_FALSE(contains(to_markdown(analysis_of(critical_of({0, 900}, 0, {}))), "to the end"));
  Study judged_low = critical_of({}, 100, {900});
  judged_low.recipe.precision.eval_bits = 3;
  EXPECT_FALSE(contains(to_markdown(analysis_of(judged_low)), "to the end"));
}

TEST(Analysis, DamageThatGrowsWithTheStartIsNoCriticalPeriod) {
  const Study study = critical_of({}, 100, {0, 200, 400, 900});
  const auto analysis_of = [&](std::map<std::int64_t, double> damage) {
    return analyse(study, runs_of(study, "accuracy", [&](const Member& m) {
                     return 0.9 + noise(m) - (m.at ? damage[*m.at] : 0);
                   }));
  };
  const Analysis growing = analysis_of({{0, 0.02}, {200, 0.04}, {400, 0.06}, {900, 0.3}});
  for (const Setting& setting : growing.settings)
    EXPECT_EQ(does_damage(growing, setting), setting.name != "no window");
  EXPECT_FALSE(growing.period);
  EXPECT_TRUE(contains(to_markdown(growing), "No critical period: early windows do no more damage"));
  EXPECT_FALSE(analysis_of({{0, 0.1}, {200, 0.1}, {400, 0.1}, {900, 0.1}}).period);
  // Early damage, less and less of it, and then the end: as far as a later window does less.
  const Analysis early = analysis_of({{0, 0.2}, {200, 0.1}, {400, 0.05}, {900, 0.3}});
  ASSERT_TRUE(early.period);
  EXPECT_EQ(early.period->steps, 300);
  EXPECT_TRUE(contains(to_markdown(analysis_of({})), "No window did damage"));
}

}  // namespace
}  // namespace lowtide
