#include "lowtide/study/equal_cost.h"

#include <gtest/gtest.h>

#include "lowtide/cost/summary.h"
#include "lowtide/study/study.h"
#include "lowtide/train/learning_rate.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

constexpr std::int64_t kSteps = 2000;
constexpr std::int64_t kFullCost = kSteps * (8 * 8 + 2 * 8 * 8);

Study budget_study(const std::vector<std::string>& schedules = {}, const std::vector<double>& budgets = {}) {
  Study study;
  study.kind = Study::kBudget;
  study.schedules = schedules;
  study.budgets = budgets;
  study.recipe.data.dir = "data";
  study.recipe.training.steps = kSteps;
  study.recipe.training.lr_schedule = "cosine";
  return study;
}

Study completed(Study study) {
  complete(study);
  return study;
}

std::string error_of_study(Study study) {
  return user_error([&] { complete(study); });
}

std::int64_t cost_of(const Recipe& recipe) {
  const TrainingOptions& training = recipe.training;
  const auto schedule =
      make_schedule(schedule_of(recipe.precision), training.steps, rates_of(training, training.steps));
  std::int64_t cost = 0;
  for (std::int64_t step = 0; step < training.steps; ++step) cost += step_cost(schedule->at(step));
  return cost;
}

std::string line_of(const Recipe& recipe) { return to_string(schedule_of(recipe.precision)); }

TEST(EqualCost, EveryBudgetIsSpentInEveryWayAndFullCostIsOnce) {
  const std::vector<Member> all = members(completed(budget_study()));
  // c(b) = b² + 16 b is 57, 80, 105, 132, 161 for 3 to 7 bits: of 192 that is 0.297, 0.417, 0.547, 0.688, 0.839. So one
  // number of low bits meets 0.40, three meet 0.63 and four 0.82, each with the ten, matched, three of price and of waterfill,
  // constant and shorter.
  ASSERT_EQ(all.size(), 3u * (3 * 19 + 1 + 3 + 4 + 1));
  EXPECT_EQ(all[0].name, "RR-0.4-seed1");
  EXPECT_EQ(all[11].name, "price-0.4-seed1");
  EXPECT_EQ(all[14].name, "waterfill-0.4-seed1");
  EXPECT_EQ(all[19].name, "3-then-8-0.4-seed1");
  EXPECT_EQ(all[41].setting, "5 then 8 0.63");
  EXPECT_EQ(all[65].name, "static-seed1");
  EXPECT_EQ(line_of(all[65].recipe), "static 8 grad=8");
  EXPECT_EQ(all[66].name, "RR-0.4-seed2");  // seed by seed
  for (std::size_t i = 0; i < 65; ++i) {
    const double budget = *all[i].budget * kFullCost;
    EXPECT_LE(static_cast<double>(cost_of(all[i].recipe)), budget * (1 + 1e-12)) << all[i].name;
    // Below it by less than one step at the highest bits; a plan of price also by its 18 probes of 7² + 8² bit operations at
    // most, and by the whole bits of its first 100 steps.
    const double planned = all[i].way.starts_with("price") ? 18 * 113 + 100 * 31 : 0;
    EXPECT_GT(static_cast<double>(cost_of(all[i].recipe)), budget - 192 - planned) << all[i].name;
  }
}

TEST(EqualCost, PriceComesWithItsBitsShuffledAndReplayed) {
  Study study = completed(budget_study({"price"}, {0.63}));
  study.recipe.training.seed = 5;
  const std::vector<Member> all = members(study);
  ASSERT_EQ(all.size(), 3u * 4);
  EXPECT_EQ(line_of(all[0].recipe), "price 3:8 grad=8 every=100 budget=0.63");
  EXPECT_FALSE(all[0].bits_of);
  EXPECT_EQ(all[1].name, "price-shuffled-0.63-seed5");
  EXPECT_EQ(all[1].bits_of->member, all[0].name);
  EXPECT_TRUE(all[1].bits_of->shuffled);
  EXPECT_EQ(all[2].name, "price-replayed-0.63-seed5");
  EXPECT_FALSE(all[2].bits_of->shuffled);
  const auto source = [&](std::size_t i) { return all[i].bits_of->member; };
  EXPECT_EQ((std::vector{source(2), source(6), source(10)}),
            (std::vector<std::string>{"price-0.63-seed6", "price-0.63-seed5", "price-0.63-seed6"}));
  study.seeds = 1;
  EXPECT_EQ(members(study).size(), 3u) << "there is no other seed to replay";
  const auto line_over = [&](std::int64_t steps) {
    study.recipe.training.steps = steps;
    return line_of(members(study)[0].recipe);
  };
  EXPECT_EQ(line_over(64000), "price 3:8 grad=8 every=100 budget=0.63");
  EXPECT_EQ(line_over(1000), "price 3:8 grad=8 every=50 budget=0.63");
  EXPECT_EQ(line_over(200), "price 3:8 grad=8 every=25 budget=0.63");
  EXPECT_EQ(line_over(60), "price 3:8 grad=8 every=15 budget=0.63");
}

TEST(EqualCost, SoDoesWaterfill) {
  const std::vector<Member> all = members(completed(budget_study({"waterfill"}, {0.63})));
  ASSERT_EQ(all.size(), 3u * 4);
  EXPECT_EQ(line_of(all[0].recipe), "waterfill 3:8 grad=8 alpha=0.5 every=100 budget=0.63");
  EXPECT_EQ(all[1].name, "waterfill-shuffled-0.63-seed1");
  EXPECT_EQ(all[1].bits_of->member, "waterfill-0.63-seed1");
  EXPECT_TRUE(all[1].bits_of->shuffled);
  EXPECT_EQ(all[2].name, "waterfill-replayed-0.63-seed1");
  EXPECT_EQ(all[2].bits_of->member, "waterfill-0.63-seed2");
}

// As recipes of language models have it: few bits would do harm, and the rate falls when the loss does not. From 5 bits on 105 of 192
// is the least, 0.547.
TEST(EqualCost, WhatCannotSpendABudgetIsLeftOutWithTheReason) {
  Study study = budget_study({"CR,matched,price,constant,shorter,phases"}, {0.4, 0.63});
  study.recipe.precision.bits = "5:8";
  study.recipe.training.lr_schedule = "plateau";
  complete(study);
  std::vector<std::string> settings, left_out;
  for (const Member& member : members(study)) {
    if (member.recipe.training.seed == 1) settings.push_back(member.setting);
  }
  EXPECT_EQ(settings, (std::vector<std::string>{"constant 0.4", "shorter 0.4", "CR 0.63", "price 0.63",
                                                "price shuffled 0.63", "price replayed 0.63", "constant 0.63",
                                                "shorter 0.63", "5 then 8 0.63", "static"}));
  for (const ImpossibleSetting& one : study.impossible) {
    left_out.push_back(one.setting);
    EXPECT_TRUE(one.setting.starts_with("matched") ? contains(one.reason, "known beforehand")
                : one.setting == "phases 0.4"      ? contains(one.reason, "expected more than 0.5469")
                                                   : contains(one.reason, "possible is 0.54"))
        << one.reason;
  }
  EXPECT_EQ(left_out, (std::vector<std::string>{"CR 0.4", "matched 0.4", "price 0.4", "price shuffled 0.4",
                                                "price replayed 0.4", "phases 0.4", "matched 0.63"}));
  // Its file gives the same study.
  EXPECT_EQ(parse_study(to_toml(study), "study.toml").impossible.size(), left_out.size());
}

TEST(EqualCost, OfSampledGraphsPriceIsLeftOut) {
  Study study = budget_study({"price,waterfill,constant"}, {0.63});
  study.recipe.data.format = "citation";
  study.recipe.data.node_split = "0.5:0.2";
  study.recipe.data.fan_out = {3, 3};
  study.recipe.model.name = "sage";
  study.recipe.model.layers = 2;
  study.seeds = 1;
  complete(study);
  ASSERT_EQ(study.impossible.size(), 2u);
  EXPECT_EQ(study.impossible[0].setting, "price 0.63");
  EXPECT_TRUE(contains(study.impossible[0].reason, "with fan-out"));
  EXPECT_EQ(members(study).size(), 4u) << "waterfill, its bits shuffled, constant and static";
}

// Bits of layers are chosen for those without a rule.
TEST(EqualCost, WhereLayersHaveRulesWaterfillIsLeftOut) {
  Study study = completed(budget_study({"waterfill,constant"}, {0.4, 0.63}));
  EXPECT_TRUE(has_bits_for_layers(study));
  EXPECT_TRUE(fit_to_layers(study, {{100, true}, {100, true}}).empty());
  const std::vector<ImpossibleSetting> left_out = fit_to_layers(study, {{100, false}, {100, false}});
  ASSERT_EQ(left_out.size(), 1u);
  EXPECT_EQ(left_out[0].setting, "waterfill");
  EXPECT_TRUE(contains(left_out[0].reason, "none without a rule"));
  EXPECT_EQ(study.schedules, std::vector<std::string>{"constant"});
  EXPECT_FALSE(has_bits_for_layers(study));
  study = completed(budget_study({"waterfill"}, {0.63}));
  EXPECT_TRUE(contains(user_error([&] { fit_to_layers(study, {{100, false}}); }), "none without a rule"));
}

TEST(EqualCost, ALoopIsKnownByItsScheduleWhereverThatStands) {
  EXPECT_EQ(loop_of("waterfill"), "waterfill");
  EXPECT_EQ(loop_of("delayed 10% at=fp32 waterfill 3:8 alpha=0.5"), "waterfill");
  EXPECT_EQ(loop_of("price 3:8 every=50 then 8 last=10%"), "price");
  for (const char* other :
       {"CR", "constant", "phases", "CR 3:8 n=2 then 8 last=10%", "matched 3:8 alpha=0.5"})
    EXPECT_EQ(loop_of(other), std::nullopt) << other;
  EXPECT_TRUE(has_bits_for_layers(completed(budget_study({"waterfill 3:8 alpha=0.5"}, {0.63}))));
  EXPECT_FALSE(has_bits_for_layers(completed(budget_study({"price,matched"}, {0.63}))));
}

TEST(EqualCost, AScriptHasNoLoop) {
  Study study = budget_study({}, {0.63});
  study.command = "train {schedule} {seed} {out} {steps}";
  EXPECT_EQ(completed(study).schedules.size(), 14u);
  study.schedules = {"price"};
  EXPECT_TRUE(contains(error_of_study(study), "price runs in `lowtide train` alone"));
  study.schedules = {"all", "delayed 10% waterfill 3:8"};
  EXPECT_TRUE(contains(error_of_study(study), "waterfill runs in `lowtide train` alone"));
}

TEST(EqualCost, TwoPhasesAreLowFirst) {
  const Recipe recipe = budget_study().recipe;
  EXPECT_EQ(ways_of("phases", recipe, 0.63), (std::vector<std::string>{"3 then 8", "4 then 8", "5 then 8"}));
  // 0.37 · 192 / (192 - 57) · 2000 = 1052.4 steps at 3 bits, and 0.37 · 192 / (192 - 105) · 2000 = 1633.1 at 5.
  EXPECT_EQ(line_of(spend_budget(recipe, "3 then 8", 0.63)), "table 3x1053 8x947 grad=8");
  EXPECT_EQ(line_of(spend_budget(recipe, "5 then 8", 0.63)), "table 5x1634 8x366 grad=8");
}

TEST(EqualCost, ShorterIsTheSameTrainingInFewerSteps) {
  Recipe recipe = budget_study().recipe;
  recipe.training.warmup = 50;
  recipe.training.lr_delay = 100;
  recipe.training.lr_steps = {0.5, 1500};
  recipe.training.plateau_every = 500;
  const TrainingOptions brief = spend_budget(recipe, "shorter", 0.4).training;
  EXPECT_EQ(brief.steps, 800);
  EXPECT_EQ(brief.warmup, 20);
  EXPECT_EQ(brief.lr_delay, 40);
  EXPECT_EQ(brief.plateau_every, 200);
  EXPECT_EQ(brief.lr_steps, (std::vector<double>{0.5, 600}));
  // Where a share of the steps is done, the rate is what it was there.
  const LearningRate whole(recipe.training, 2000), shorter(brief, 800);
  for (const std::int64_t step : {200, 400, 600, 799})
    EXPECT_NEAR(shorter.at(step), whole.at(step * 5 / 2), 1e-3) << step;
}

TEST(EqualCost, AWayIsJudgedAtTheBitsThatItEndsWith) {
  Recipe recipe = budget_study().recipe;
  const auto judged_at = [&](const std::string& way, double budget) {
    return evaluation_bits(spend_budget(recipe, way, budget).precision).forward;
  };
  // 0.4, 0.63 and 0.82 of 192 are 76.8, 121 and 157.4, and 57, 80, 105, 132, 161 what 3 to 7 bits cost.
  for (const std::string way : {"constant", "price shuffled", "waterfill shuffled"}) {
    EXPECT_EQ(judged_at(way, 0.4), 4) << way;
    EXPECT_EQ(judged_at(way, 0.63), 6) << way;
    EXPECT_EQ(judged_at(way, 0.82), 7) << way;
  }
  for (const std::string way : {"price", "price replayed", "waterfill", "waterfill replayed", "matched",
                                "shorter", "3 then 8", "LR 3:8 n=2 then 8 last=10%"})
    EXPECT_EQ(judged_at(way, 0.4), 8) << way;
  // The cosine, lowered: what the top of its last cycle is left with.
  const Recipe lowered = spend_budget(recipe, "CR", 0.4);
  const auto schedule = make_schedule(schedule_of(lowered.precision), kSteps);
  int highest = 0;
  for (std::int64_t step = kSteps - 200; step < kSteps; ++step)
    highest = std::max(highest, schedule->at(step).forward);
  EXPECT_LT(highest, 8);
  EXPECT_EQ(judged_at("CR", 0.4), highest);
  recipe.precision.eval_bits = 8;
  EXPECT_EQ(judged_at("constant", 0.4), 8) << "as the recipe asks";
  recipe.precision.eval_bits = 0;
  EXPECT_EQ(judged_at("constant", 0.4), 0);
}

TEST(EqualCost, GradientBitsThatMoveDoSoInTheTenAlone) {
  Recipe recipe = budget_study().recipe;
  recipe.precision.grad_bits = "6:8";
  EXPECT_EQ(line_of(spend_budget(recipe, "CR", 0.5)), "CR 3:8 n=8 grad=6:8 budget=0.5");
  EXPECT_EQ(line_of(spend_budget(recipe, "constant", 0.5)), "static 8 grad=8 budget=0.5");
  EXPECT_EQ(line_of(spend_budget(recipe, "matched", 0.5)), "matched 3:8 grad=8 budget=0.5");
}

TEST(EqualCost, NamesInAnyCaseAndWholeLines) {
  const Study study =
      completed(budget_study({"cr,CONSTANT", "delayed 5% LR 4:8 n=2 then 8 last=10%"}, {0.8, 0.7, 0.8}));
  EXPECT_EQ(study.schedules,
            (std::vector<std::string>{"CR", "constant", "delayed 5% LR 4:8 n=2 then 8 last=10%"}));
  EXPECT_EQ(study.budgets, (std::vector<double>{0.7, 0.8}));
  const std::vector<Member> all = members(study);
  EXPECT_EQ(all[2].name, "delayed-5pct-LR-4-8-n=2-then-8-last=10pct-0.7-seed1");
  EXPECT_EQ(line_of(all[2].recipe), "delayed 5% LR 4:8 n=2 grad=8 budget=0.7 then 8 last=10%");
  EXPECT_NEAR(static_cast<double>(cost_of(all[2].recipe)), 0.7 * kFullCost, 192);
}

TEST(EqualCost, LinesOfAnySpellingHaveTheirBudgetBeforeTheTail) {
  const std::vector<Member> all =
      members(completed(budget_study({"table 4x1000 7x1000", "lr 4:8 n=2\tTHEN 8 last=10%"}, {0.63})));
  EXPECT_EQ(line_of(all[0].recipe), "table 4x1000 7x1000 grad=8 budget=0.63");
  EXPECT_EQ(line_of(all[1].recipe), "LR 4:8 n=2 grad=8 budget=0.63 then 8 last=10%");
}

TEST(EqualCost, ItsFileGivesItBack) {
  const Study study = completed(budget_study({"CR", "constant", "phases"}, {0.4, 0.63}));
  const Study read = parse_study(to_toml(study), "study.toml");
  EXPECT_TRUE(differences(read, study).empty());
  EXPECT_EQ(members(read).size(), members(study).size());
  EXPECT_EQ(differences(completed(budget_study({"CR", "constant", "phases"}, {0.4})), study),
            std::vector<std::string>{"budgets"});
}

TEST(EqualCost, WhatCannotBeIsRefusedInOneLine) {
  EXPECT_TRUE(contains(error_of_study(budget_study({}, {0.5, 1})), "budgets has 1; expected shares"));
  EXPECT_TRUE(contains(error_of_study(budget_study({}, {0})), "budgets has 0;"));
  EXPECT_TRUE(contains(error_of_study(budget_study({"CR"}, {0.2})),
                       "budget=0.2 of static 8 grad=8 cannot be met by 3 to 8 bits; possible is 0.2969"));
  EXPECT_TRUE(contains(error_of_study(budget_study({"phases"}, {0.2})),
                       "budget 0.2 cannot be met by two phases of 3 to 8 bits; expected more than 0.2969"));
  EXPECT_TRUE(contains(error_of_study(budget_study({"shortest"})), "schedules has 'shortest'",
                       "did you mean 'shorter'?"));
  EXPECT_TRUE(contains(error_of_study(budget_study({"static"})), "schedules has 'static'", "constant"));
  EXPECT_TRUE(contains(error_of_study(budget_study({"CR,CR"})), "schedule 'CR' is in the study twice"));
  EXPECT_TRUE(contains(error_of_study(budget_study({"deficit 3:8 steps=100"})), "no parameter 'budget'"));
  EXPECT_TRUE(contains(error_of_study(budget_study({"CR 3:8 budget=0.5"})), "budget is given twice"));
  Study study = budget_study();
  study.recipe.precision.bits = "8";
  EXPECT_TRUE(contains(error_of_study(study), "a budget needs two numbers"));
  study = budget_study({"matched"});
  study.recipe.training.lr_schedule = "plateau";
  study.recipe.data.validation = 100;
  EXPECT_TRUE(contains(error_of_study(study), "matched follows the learning rate"));
  study = budget_study({"matched"});
  study.recipe.training.lr_schedule = "constant";
  EXPECT_TRUE(contains(error_of_study(study), "at a constant one it is constant bits"));
  study.recipe.training.warmup = 100;
  EXPECT_NO_THROW(completed(study));
  study = budget_study();
  study.deficits = {100};
  EXPECT_TRUE(contains(error_of_study(study), "a study of kind budget has no deficits"));
  study = budget_study({}, {0.5});
  study.kind = Study::kSuite;
  EXPECT_TRUE(contains(error_of_study(study), "budgets are a study's of kind budget"));
}

}  // namespace
}  // namespace lowtide
