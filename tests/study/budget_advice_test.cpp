#include <gtest/gtest.h>

#include "lowtide/study/advice.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

constexpr double kStatic = 0.0625;  // 8 bits, gradients 8: (64 + 128) / 3072

AdviceRequest request() {
  AdviceRequest result;
  result.recipe.data.dir = "data";
  result.recipe.training.steps = 2000;
  result.recipe.training.lr_schedule = "cosine";
  result.recipe.training.warmup = 50;
  result.steps = 2000;
  return result;
}

// Three seeds around a mean, which leave means 0.01 · √(2/3) = 0.008 apart by noise alone.
Setting measured(double budget, const std::string& way, double mean, std::optional<double> p = {}) {
  Setting setting{.name = way + std::to_string(budget),
                  .schedule = parse_schedule(way == "3 then 8" ? "table 3x1053 8x947" : "static 8"),
                  .by_seed = {{1, mean - 0.01}, {2, mean}, {3, mean + 0.01}},
                  .mean = mean,
                  .deviation = 0.01};
  if (budget < 1) {
    setting.budget = budget;
    setting.way = way;
  }
  if (p) setting.contrast = Contrast{.difference = 0.01, .test = "paired t, 3 seeds", .p = p};
  return setting;
}

// Settings at a budget from the best to the worst, as an analysis has them.
AdviceRequest with_study(std::vector<Setting> settings) {
  AdviceRequest result = request();
  Analysis analysis;
  analysis.study.kind = Study::kBudget;
  analysis.study.recipe = result.recipe;
  analysis.metric = &find_metric("accuracy");
  analysis.split = "held-out";
  analysis.reference = "constant";
  analysis.settings = std::move(settings);
  result.studies = {analysis};
  return result;
}

std::string reasons(const Advice& advice) {
  std::string text;
  for (const std::string& reason : advice.reasons) text += reason + "\n";
  return text;
}

// 4 bits with gradients of 6: (16 + 48) / 3072, of which a share in binary is not what was typed.
TEST(BudgetAdvice, AShareThatWasAskedForIsTheOneThatWasMeasured) {
  AdviceRequest asked = with_study({measured(0.46, "constant", 0.90), measured(1, "static", 0.92)});
  asked.recipe.precision.bits = "2:4";
  asked.recipe.precision.grad_bits = "6";
  asked.budget = 0.46 * (64.0 / 3072);
  ASSERT_NE(*asked.budget / (64.0 / 3072), 0.46);
  const Advice advice = advise(asked);
  EXPECT_EQ(to_string(advice.schedule), "static 4 grad=6 budget=0.46");
  for (const std::string& reason : advice.reasons) EXPECT_FALSE(contains(reason, "nearest budget")) << reason;
}

TEST(BudgetAdvice, ConstantUnlessAnotherIsToldToBeBetter) {
  AdviceRequest asked = with_study({measured(0.63, "CR", 0.90, 0.2), measured(0.63, "matched", 0.895, 0.01),
                                    measured(0.63, "constant", 0.89), measured(1, "static", 0.9)});
  asked.budget = 0.63 * kStatic;
  const Advice advice = advise(asked);
  EXPECT_EQ(to_string(advice.schedule), "matched 3:8 grad=8 budget=0.63");
  EXPECT_TRUE(contains(reasons(advice),
                       "At 0.63 of static's cost matched is the best that is told to be better",
                       "(p 0.010), held-out accuracy 89.50 % over 3 seeds"));
  EXPECT_LE(advice.relative_cost, *asked.budget);
  EXPECT_GT(advice.of_static, 0.6299);
  asked.studies[0].settings[1].contrast->p = 0.06;
  const Advice simple = advise(asked);
  EXPECT_EQ(to_string(simple.schedule), "static 8 grad=8 budget=0.63");
  EXPECT_EQ(simple.eval_bits, 6) << "as it was judged there";
  EXPECT_EQ(advice.eval_bits, -1) << "matched ends with 8 bits";
  EXPECT_TRUE(contains(reasons(simple), "never has more than 6 bits in its last steps"));
  EXPECT_TRUE(
      contains(reasons(simple), "no way to spend it that was measured is told to be better than constant"));
}

TEST(BudgetAdvice, PriceItselfButNotTheBitsThatItHad) {
  AdviceRequest asked = with_study(
      {measured(0.63, "price replayed", 0.91, 0.001), measured(0.63, "price shuffled", 0.905, 0.001),
       measured(0.63, "price", 0.90, 0.01), measured(0.63, "constant", 0.89), measured(1, "static", 0.9)});
  asked.budget = 0.63 * kStatic;
  const Advice advice = advise(asked);
  EXPECT_EQ(to_string(advice.schedule), "price 3:8 grad=8 every=100 budget=0.63");
  EXPECT_DOUBLE_EQ(advice.relative_cost, *asked.budget) << "probes included";
}

TEST(BudgetAdvice, AnotherBudgetTakesTheWayOfTheNearest) {
  AdviceRequest asked = with_study({measured(0.4, "constant", 0.85), measured(0.82, "3 then 8", 0.91, 0.001),
                                    measured(0.82, "constant", 0.89), measured(1, "static", 0.9)});
  asked.budget = 0.7 * kStatic;
  const Advice advice = advise(asked);
  // 0.3 · 192 / (192 - 57) · 2000 = 853.3 steps at 3 bits.
  EXPECT_EQ(to_string(advice.schedule), "table 3x854 8x1146 grad=8");
  EXPECT_TRUE(contains(reasons(advice), "0.82 is the nearest budget that was measured, not 0.7"));
  asked.budget = 1.1 * kStatic;
  EXPECT_EQ(to_string(advise(asked).schedule), "static 8 grad=8");
}

TEST(BudgetAdvice, WhereNoBudgetHasAResultYetTheBudgetIsStillKept) {
  AdviceRequest asked = with_study({measured(1, "static", 0.9)});
  asked.budget = 0.5 * kStatic;
  const Advice advice = advise(asked);
  EXPECT_EQ(to_string(advice.schedule), "static 8 grad=8 budget=0.5");
  EXPECT_LE(advice.relative_cost, *asked.budget);
  EXPECT_TRUE(contains(reasons(advice), "no result at any budget yet", "Constant bits"));
}

// 3 bits cost 0.297 of static.
TEST(BudgetAdvice, AWayThatIsNotPossibleAtTheBudgetGivesWayToConstant) {
  AdviceRequest asked = with_study({measured(0.4, "3 then 8", 0.91, 0.001), measured(0.4, "constant", 0.8)});
  asked.budget = 0.29 * kStatic;
  const Advice advice = advise(asked);
  EXPECT_EQ(to_string(advice.schedule), "static 8 grad=8 budget=0.29");
  EXPECT_TRUE(contains(reasons(advice), "3 then 8 cannot spend 0.29 of static's cost here",
                       "a budget of 0.29 is less than 3 bits cost"));
  asked.budget = 0.05 * kStatic;
  EXPECT_TRUE(contains(user_error([&] { advise(asked); }), "possible is 0.1"));
}

TEST(BudgetAdvice, ShorterTrainingIsAnAdviceToo) {
  AdviceRequest asked = with_study({measured(0.5, "shorter", 0.9, 0.001), measured(0.5, "constant", 0.8)});
  asked.budget = 0.5 * kStatic;
  const Advice advice = advise(asked);
  EXPECT_EQ(to_string(advice.schedule), "static 8 grad=8");
  EXPECT_EQ(advice.training.steps, 1000);
  EXPECT_EQ(advice.training.warmup, 25);
  EXPECT_NEAR(advice.of_static, 0.5, 1e-12);
}

TEST(BudgetAdvice, GoalsChooseTheBudget) {
  AdviceRequest asked = with_study({measured(0.4, "constant", 0.85), measured(0.63, "constant", 0.895),
                                    measured(0.82, "constant", 0.915), measured(1, "static", 0.90)});
  asked.goal = Goal::kCheapest;
  EXPECT_EQ(to_string(advise(asked).schedule), "static 8 grad=8 budget=0.4");
  asked.goal = Goal::kBalanced;  // 0.005 behind static
  EXPECT_EQ(to_string(advise(asked).schedule), "static 8 grad=8 budget=0.63");
  asked.goal = Goal::kBest;
  EXPECT_EQ(to_string(advise(asked).schedule), "static 8 grad=8 budget=0.82");
}

TEST(BudgetAdvice, ACriticalPeriodIsNotSpentAtLowBits) {
  AdviceRequest asked =
      with_study({measured(0.63, "3 then 8", 0.91, 0.001), measured(0.63, "constant", 0.89)});
  Analysis critical = asked.studies[0];
  critical.study.kind = Study::kCritical;
  critical.period = CriticalPeriod{200, -0.02};
  asked.studies.push_back(critical);
  asked.budget = 0.63 * kStatic;
  const Advice advice = advise(asked);
  EXPECT_EQ(to_string(advice.schedule), "delayed 10% static 8 grad=8 budget=0.63");
  EXPECT_LE(advice.relative_cost, *asked.budget);
}

TEST(BudgetAdvice, WithoutConstantAndStaticThereIsNothingToStartFrom) {
  AdviceRequest asked = with_study({measured(0.63, "CR", 0.91)});
  asked.budget = 0.63 * kStatic;
  EXPECT_TRUE(contains(user_error([&] { advise(asked); }), "neither constant nor static"));
}

}  // namespace
}  // namespace lowtide
