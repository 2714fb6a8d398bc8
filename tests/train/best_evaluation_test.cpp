#include "lowtide/train/best_evaluation.h"

#include <gtest/gtest.h>

#include <limits>

namespace lowtide {
namespace {

BestEvaluation after(const char* metric, std::int64_t patience, const std::vector<double>& values) {
  BestEvaluation best(find_metric(metric), patience);
  std::int64_t step = 0;
  for (const double value : values) best.observe(step += 10, value);
  return best;
}

TEST(BestEvaluation, FollowsTheMetricsDirection) {
  EXPECT_EQ(after("accuracy", 0, {0.2, 0.7, 0.5}).step(), 20);
  EXPECT_EQ(after("mAP", 0, {0.2, 0.7, 0.5}).value(), 0.7);
  EXPECT_EQ(after("perplexity", 0, {200, 70, 50, 60}).step(), 30);
}

TEST(BestEvaluation, TheFirstOfEqualsIsKept) {
  EXPECT_EQ(after("accuracy", 0, {0.2, 0.7, 0.7}).step(), 20);
  EXPECT_EQ(after("accuracy", 0, {0, 0}).step(), 10);
}

TEST(BestEvaluation, WhatIsNotFiniteIsNeverBest) {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(after("perplexity", 0, {nan, infinity}).step(), 0);
  EXPECT_EQ(after("perplexity", 0, {infinity, 90, -infinity}).step(), 20);
  EXPECT_EQ(after("accuracy", 0, {nan, 0.1, infinity}).step(), 20);
  EXPECT_TRUE(after("perplexity", 2, {nan, nan}).out_of_patience());
}

TEST(BestEvaluation, PatienceEndsAfterSoManyInARow) {
  EXPECT_FALSE(after("accuracy", 2, {0.5, 0.4}).out_of_patience());
  EXPECT_TRUE(after("accuracy", 2, {0.5, 0.4, 0.5}).out_of_patience());
  EXPECT_FALSE(after("accuracy", 2, {0.5, 0.4, 0.6, 0.5}).out_of_patience());
  EXPECT_FALSE(after("accuracy", 0, {0.5, 0.4, 0.3, 0.2}).out_of_patience());
}

TEST(BestEvaluation, GoesOnFromItsState) {
  BestEvaluation restored(find_metric("accuracy"), 3);
  restored.restore(Json::parse(after("accuracy", 3, {0.1, 0.1 + 0.2, 0.2, 0.2}).state().dump()));
  EXPECT_EQ(restored.step(), 20);
  EXPECT_EQ(restored.value(), 0.1 + 0.2);
  EXPECT_FALSE(restored.out_of_patience());
  restored.observe(50, 0.25);
  EXPECT_TRUE(restored.out_of_patience());
}

}  // namespace
}  // namespace lowtide
