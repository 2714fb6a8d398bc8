#include "lowtide/study/advice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lowtide/cost/bit_operations.h"
#include "lowtide/cost/summary.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

AdviceRequest request() {
  AdviceRequest result;
  result.recipe.data.dir = "data";
  result.recipe.training.steps = 2000;
  result.steps = 2000;
  return result;
}

// 8 bits, gradients 8: (64 + 128) / 3072.
constexpr double kStatic = 0.0625;

Setting measured(const std::string& name, const std::string& line, double mean, double deviation,
                 double cost) {
  Setting setting{.name = name,
                  .schedule = parse_schedule(line),
                  .by_seed = {{1, mean - deviation}, {2, mean + deviation}}};
  setting.mean = mean;
  setting.deviation = deviation;
  setting.cost = {.relative_paper = cost, .relative_actual = cost};
  return setting;
}

Analysis suite() {
  Analysis analysis;
  analysis.study.kind = Study::kSuite;
  analysis.study.recipe = request().recipe;
  analysis.metric = &find_metric("accuracy");
  analysis.split = "held-out";
  analysis.reference = "static";
  analysis.settings = {measured("RR", "RR 3:8 n=8 grad=8", 0.80, 0.01, 0.025),
                       measured("LR", "LR 3:8 n=8 grad=8", 0.899, 0.01, 0.0392),
                       measured("CT", "CT 3:8 n=8 grad=8", 0.912, 0.01, 0.0395),
                       measured("ER", "ER 3:8 n=8 grad=8", 0.92, 0.01, 0.051),
                       measured("static", "static 8 grad=8", 0.90, 0.01, kStatic),
                       measured("fp32", "fp32", 0.95, 0.01, 1)};
  return analysis;
}

Analysis critical(std::int64_t steps) {
  Analysis analysis;
  analysis.study.kind = Study::kCritical;
  analysis.study.recipe = request().recipe;
  analysis.metric = &find_metric("accuracy");
  analysis.period = CriticalPeriod{steps, -0.02};
  return analysis;
}

std::string reasons(const Advice& advice) {
  std::string text;
  for (const std::string& reason : advice.reasons) text += reason + "\n";
  return text;
}

TEST(Advice, ABudgetIsSpentOnConstantBits) {
  for (int percent = 19; percent <= 120; ++percent) {
    AdviceRequest asked = request();
    asked.budget = percent / 100.0 * kStatic;
    const Advice advice = advise(asked);
    const double cost = summarise(advice.schedule, asked.steps).relative_cost;
    EXPECT_EQ(cost, advice.relative_cost);
    EXPECT_LE(cost, *asked.budget) << percent;
    const std::string line =
        percent < 100 ? fmt::format("static 8 grad=8 budget={}", percent / 100.0) : "static 8 grad=8";
    EXPECT_EQ(to_string(advice.schedule), line);
    // Below it by less than one step at a bit more costs.
    EXPECT_GE(cost, std::min(percent / 100.0, 1.0) * kStatic * (1 - 31.0 / 192 / 0.19 / 2000)) << percent;
  }
}

TEST(Advice, TheRecipesLowestBitsAreLeftOnlyWhereTheyMust) {
  AdviceRequest asked = request();
  asked.budget = 0.35 * kStatic;  // 3 bits cost 57 / 192 = 0.297
  EXPECT_FALSE(contains(reasons(advise(asked)), "range-test"));
  asked.budget = 0.25 * kStatic;
  EXPECT_TRUE(
      contains(reasons(advise(asked)), "takes 2 bits, fewer than the recipe's lowest, 3", "range-test"));
}

TEST(Advice, ABudgetThatCannotBeMetSaysWhatCan) {
  AdviceRequest asked = request();
  asked.budget = 0.18 * kStatic;  // 2 bits cost 36 / 192
  EXPECT_TRUE(
      contains(user_error([&] { advise(asked); }), "no schedule meets the budget", "2 bits cost 0.188"));
  asked.studies = {critical(1000)};  // half at 8 bits
  asked.budget = 0.59 * kStatic;
  EXPECT_TRUE(contains(user_error([&] { advise(asked); }), "2 bits after the delay cost 0.594"));
}

TEST(Advice, GoalsAreTheThreeGroups) {
  AdviceRequest asked = request();
  asked.goal = Goal::kCheapest;
  EXPECT_EQ(to_string(advise(asked).schedule), "RR 3:8 n=8 grad=8");
  asked.goal = Goal::kBalanced;
  const Advice balanced = advise(asked);
  EXPECT_EQ(to_string(balanced.schedule), "CR 3:8 n=8 grad=8");
  // 36.7 % are saved.
  EXPECT_TRUE(contains(reasons(balanced), "the papers' rule", "--budget 0.63 spends as much on those"));
  asked.goal = Goal::kBest;
  EXPECT_EQ(to_string(advise(asked).schedule), "ER 3:8 n=8 grad=8");
  asked.recipe.precision.cycles = 2;  // fine-tuning
  EXPECT_EQ(to_string(advise(asked).schedule), "ER 3:8 n=2 grad=8");
}

TEST(Advice, GoalsByMeasurement) {
  AdviceRequest asked = request();
  asked.studies = {suite()};
  asked.goal = Goal::kCheapest;
  EXPECT_EQ(advise(asked).schedule.name, "RR");
  // Deviations of 0.01 over two seeds: means differ by sqrt(2 · 0.01² / 2) = 0.01 from noise alone. LR is
  // 0.001 behind static and cheaper than CT; CT is no more than 0.01 behind ER, the best.
  asked.goal = Goal::kBalanced;
  const Advice balanced = advise(asked);
  EXPECT_EQ(balanced.schedule.name, "LR");
  EXPECT_TRUE(contains(reasons(balanced), "Of the 6 schedules measured",
                       "held-out accuracy 89.90 % over 2 seeds", "beside constant bits at equal cost"));
  asked.goal = Goal::kBest;
  EXPECT_EQ(advise(asked).schedule.name, "CT");
}

TEST(Advice, ABudgetByMeasurementTakesTheBestThatMeetsIt) {
  AdviceRequest asked = request();
  asked.studies = {suite()};
  asked.budget = 0.7 * kStatic;
  EXPECT_EQ(advise(asked).schedule.name, "CT");
  asked.budget = 0.5 * kStatic;
  EXPECT_EQ(advise(asked).schedule.name, "RR");
  asked.budget = 0.35 * kStatic;  // none: by the rule
  const Advice advice = advise(asked);
  EXPECT_LE(advice.relative_cost, *asked.budget);
  EXPECT_TRUE(contains(reasons(advice), "None of the schedules measured"));
}

TEST(Advice, AMeasuredTableOfAnotherLengthIsLeftOutWithTheReason) {
  AdviceRequest asked = request();
  Analysis analysis = suite();
  analysis.settings.push_back(measured("table", "table 4x500 8x500", 0.99, 0.01, 0.04));
  asked.studies = {analysis};
  asked.goal = Goal::kBest;
  const Advice advice = advise(asked);
  EXPECT_EQ(advice.schedule.name, "CT");
  EXPECT_TRUE(contains(reasons(advice), "table was measured in the suite, and is left out here",
                       "has 1000 steps, but the run has 2000"));
}

TEST(Advice, MeasurementsOfPerplexityAreReadTheOtherWayRound) {
  AdviceRequest asked = request();
  Analysis analysis = suite();
  analysis.metric = &find_metric("perplexity");
  asked.studies = {analysis};
  asked.budget = kStatic;
  EXPECT_EQ(advise(asked).schedule.name, "RR");  // 0.80 is now the best
}

TEST(Advice, ACriticalPeriodDelaysQuantisation) {
  AdviceRequest asked = request();
  asked.studies = {critical(301)};
  asked.goal = Goal::kBalanced;
  const Advice advice = advise(asked);
  EXPECT_EQ(to_string(advice.schedule), "delayed 16% CR 3:8 n=8 grad=8");  // 301 of 2000 steps is 15.05 %
  EXPECT_TRUE(contains(reasons(advice), "critical-period study", "first 16 %"));
  for (const int percent : {50, 60, 75, 95}) {
    asked.budget = percent / 100.0 * kStatic;
    const Advice within = advise(asked);
    EXPECT_LE(within.relative_cost, *asked.budget) << percent;
    EXPECT_GE(within.relative_cost, *asked.budget - 0.011 * kStatic) << percent;
    EXPECT_EQ(to_string(within.schedule),
              fmt::format("delayed 16% static 8 grad=8 budget={}", percent / 100.0));
  }
  asked.budget.reset();
  asked.studies = {suite(), critical(301)};
  EXPECT_EQ(to_string(advise(asked).schedule), "delayed 16% LR 3:8 n=8 grad=8");
}

TEST(Advice, ACriticalPeriodWithoutEndLeavesNothingToQuantise) {
  AdviceRequest asked = request();
  asked.studies = {critical(2000)};
  EXPECT_TRUE(contains(user_error([&] { advise(asked); }), "whole training", "--schedule static"));
}

TEST(Advice, AnotherLengthsMeasurementsAreSaidToBe) {
  AdviceRequest asked = request();
  asked.studies = {suite(), critical(301)};
  EXPECT_FALSE(contains(reasons(advise(asked)), "Mind that"));
  asked.steps = 64000;
  EXPECT_TRUE(contains(reasons(advise(asked)),
                       "the suite was measured over 2000 steps, not over this recipe's 64000",
                       "the critical-period study was measured over 2000 steps"));
}

TEST(Advice, AnotherModelsMeasurementsAreSaidToBe) {
  AdviceRequest asked = request();
  asked.studies = {suite()};
  asked.recipe.model.name = "resnet18";
  EXPECT_TRUE(contains(reasons(advise(asked)),
                       "measured with cifar-resnet8 on data, not with this recipe's resnet18"));
}

TEST(Advice, WaysWithABudgetInASuiteAreChosenToo) {
  AdviceRequest asked = request();
  asked.recipe.training.lr_schedule = "cosine";
  asked.studies = {suite()};
  asked.studies[0].settings.push_back(
      measured("matched", "matched 3:8 grad=8 budget=0.5", 0.93, 0.01, 0.5 * kStatic));
  asked.budget = 0.6 * kStatic;
  EXPECT_EQ(to_string(advise(asked).schedule), "matched 3:8 grad=8 budget=0.5");
  asked.studies[0].settings.back() =
      measured("waterfill", "waterfill 3:8 grad=8 every=100 budget=0.5", 0.93, 0.01, 0.5 * kStatic);
  EXPECT_EQ(to_string(advise(asked).schedule), "waterfill 3:8 grad=8 every=100 budget=0.5");
  asked.recipe.training.lr_schedule = "plateau";
  asked.studies[0].settings.back() =
      measured("matched", "matched 3:8 grad=8 budget=0.5", 0.93, 0.01, 0.5 * kStatic);
  EXPECT_TRUE(contains(reasons(advise(asked)), "matched was measured in the suite, and is left out here"));
}

TEST(Advice, TheStudyOfTheRecipesOwnModelIsAskedFirst) {
  AdviceRequest asked = request();
  Analysis other = suite();
  other.study.recipe.model.name = "another";
  std::swap(other.settings[0].mean, other.settings[3].mean);  // RR is the best there
  asked.studies = {other, suite()};
  asked.goal = Goal::kBest;
  const Advice advice = advise(asked);
  EXPECT_EQ(advice.schedule.name, "CT");  // the cheapest within noise of the best
  EXPECT_FALSE(contains(reasons(advice), "was measured with another"));
  asked.studies.pop_back();
  EXPECT_TRUE(contains(reasons(advise(asked)), "was measured with another"));
}

}  // namespace
}  // namespace lowtide
