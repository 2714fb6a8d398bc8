#include "lowtide/train/run_length.h"

#include <gtest/gtest.h>

#include "lowtide/base/error.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

Recipe with(const std::string& schedule, const std::string& lr_schedule) {
  Recipe recipe;
  recipe.precision.schedule = schedule;
  recipe.training.lr_schedule = lr_schedule;
  return recipe;
}

// What is said when 100 steps become 200; "" where that can be.
std::string refusal(const Recipe& recipe, std::int64_t done = 100) {
  try {
    check_can_extend(recipe, 100, 200, done);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

TEST(RunLength, IsTheRecipes) {
  Recipe recipe;
  recipe.training.epochs = 2.5;
  EXPECT_EQ(total_steps(recipe.training, 10), 25);
  recipe.training.steps = 7;
  EXPECT_EQ(total_steps(recipe.training, 10), 7);
}

TEST(RunLength, MoreStepsFollowWhereTheFirstStayTheSame) {
  for (const char* schedule : {"static", "fp32", "deficit 3:8 grad=8 steps=30", "window 3:8 from=10 to=20",
                               "delayed 20 at=fp32 static 5", "progressive 3,4,8 patience=2"}) {
    EXPECT_EQ(refusal(with(schedule, "constant")), "") << schedule;
  }
  for (const char* rate : {"constant", "inverse-sqrt", "plateau"}) {
    Recipe recipe = with("static", rate);
    recipe.training.warmup = 10;
    EXPECT_EQ(refusal(recipe), "") << rate;
  }
  Recipe absolute = with("static", "steps");
  absolute.training.lr_steps = {50, 150};
  EXPECT_EQ(refusal(absolute), "");
}

TEST(RunLength, ASchedulesStepsThatWouldHaveBeenOthersAreNamed) {
  EXPECT_TRUE(contains(refusal(with("CR", "constant")), "from 100 to 200 steps", "step ", "CR 3:8 n=8 grad=8",
                       "another --out"));
  EXPECT_TRUE(contains(refusal(with("delayed 20% at=fp32 static 5", "constant")),
                       "step 21 had 5/8 bits where schedule", "has fp32"));
  EXPECT_TRUE(contains(refusal(with("static", "cosine")), "step 2 had learning rate", "lr-schedule cosine"));
  // The rate falls at half of the run: after step 50, or after step 100.
  EXPECT_TRUE(contains(refusal(with("static", "steps")),
                       "step 51 had learning rate 0.01 where lr-schedule steps over 200 steps has 0.1"));
  EXPECT_EQ(refusal(with("static", "steps"), 50), "") << "before it fell";
}

TEST(RunLength, AScheduleThatListensMustHaveHeardTheSame) {
  // At the same bits, but it began to listen after 25 steps, or after 50.
  EXPECT_TRUE(contains(refusal(with("delayed 25% at=3 progressive 3,4,8 patience=2", "constant")),
                       "a delay of 50, not 25"));
  EXPECT_TRUE(
      contains(refusal(with("price 3:8 every=20 budget=0.7", "constant")), "planned its budget for 100"));
}

TEST(RunLength, AveragesAreOfTheSameSteps) {
  Recipe recipe = with("static", "constant");
  recipe.training.swa_start = 0.5;
  EXPECT_TRUE(contains(refusal(recipe), "averaging began after step 50"));
  EXPECT_EQ(refusal(recipe, 50), "");
  recipe.training.swa_start = 0;
  EXPECT_EQ(refusal(recipe), "");
}

TEST(RunLength, FewerStepsAreRefused) {
  EXPECT_TRUE(contains(user_error([] { check_can_extend(with("static", "constant"), 100, 99, 10); }),
                       "steps is 99", "has 100", "not with fewer"));
}

}  // namespace
}  // namespace lowtide
