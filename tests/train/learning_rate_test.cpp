#include "lowtide/train/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

// Few multiplications of double precision.
constexpr double kTolerance = 1e-15;

TrainingOptions training_with(const std::string& schedule) {
  TrainingOptions training;
  training.lr = 0.4;
  training.lr_schedule = schedule;
  return training;
}

TEST(LearningRate, ConstantIsConstant) {
  const LearningRate rate(training_with("constant"), 100);
  for (const std::int64_t step : {0, 1, 50, 99, 1000}) EXPECT_EQ(rate.at(step), 0.4);
}

TEST(LearningRate, StepsAtFractionsOfTheRun) {
  const LearningRate rate(training_with("steps"), 200);  // the default: 0.1 at 50 % and at 75 %
  EXPECT_EQ(rate.at(0), 0.4);
  EXPECT_EQ(rate.at(99), 0.4);
  EXPECT_NEAR(rate.at(100), 0.04, kTolerance);
  EXPECT_NEAR(rate.at(149), 0.04, kTolerance);
  EXPECT_NEAR(rate.at(150), 0.004, kTolerance);
  EXPECT_NEAR(rate.at(199), 0.004, kTolerance);
}

TEST(LearningRate, StepsAtNumbersOfSteps) {
  TrainingOptions training = training_with("steps");
  training.lr_steps = {30, 60};
  training.lr_gamma = 0.5;
  const LearningRate rate(training, 1000);
  EXPECT_EQ(rate.at(29), 0.4);
  EXPECT_EQ(rate.at(30), 0.2);
  EXPECT_EQ(rate.at(59), 0.2);
  EXPECT_EQ(rate.at(60), 0.1);
  EXPECT_EQ(rate.at(999), 0.1);
}

TEST(LearningRate, OneIsTheWholeRunAndAFractionIsRounded) {
  TrainingOptions training = training_with("steps");
  training.lr_steps = {1.0};
  EXPECT_EQ(LearningRate(training, 10).at(9), 0.4);
  training.lr_steps = {1.0 / 3};
  EXPECT_EQ(LearningRate(training, 10).at(2), 0.4);
  EXPECT_NEAR(LearningRate(training, 10).at(3), 0.04, kTolerance);
  training.lr_steps = {};
  EXPECT_EQ(LearningRate(training, 10).at(9), 0.4);
}

TEST(LearningRate, CosineFallsToItsEnd) {
  TrainingOptions training = training_with("cosine");
  const LearningRate to_zero(training, 100);
  EXPECT_NEAR(to_zero.at(0), 0.4, kTolerance);
  EXPECT_NEAR(to_zero.at(50), 0.2, kTolerance);
  EXPECT_NEAR(to_zero.at(25), 0.4 * (1 + std::sqrt(0.5)) / 2, kTolerance);
  EXPECT_NEAR(to_zero.at(100), 0, kTolerance);
  training.lr_final = 0.1;
  const LearningRate to_tenth(training, 100);
  EXPECT_NEAR(to_tenth.at(0), 0.4, kTolerance);
  EXPECT_NEAR(to_tenth.at(50), 0.22, kTolerance);
  EXPECT_NEAR(to_tenth.at(100), 0.04, kTolerance);
}

TEST(LearningRate, LinearFallsToItsEnd) {
  TrainingOptions training = training_with("linear");
  training.lr_final = 0.5;
  const LearningRate rate(training, 100);
  EXPECT_NEAR(rate.at(0), 0.4, kTolerance);
  EXPECT_NEAR(rate.at(25), 0.35, kTolerance);
  EXPECT_NEAR(rate.at(99), 0.202, kTolerance);
  EXPECT_NEAR(rate.at(100), 0.2, kTolerance);
}

TEST(LearningRate, WarmUpReachesTheRateAtItsLastStep) {
  TrainingOptions training = training_with("constant");
  training.warmup = 4;
  const LearningRate rate(training, 100);
  EXPECT_NEAR(rate.at(0), 0.1, kTolerance);
  EXPECT_NEAR(rate.at(1), 0.2, kTolerance);
  EXPECT_NEAR(rate.at(2), 0.3, kTolerance);
  EXPECT_EQ(rate.at(3), 0.4);
  EXPECT_EQ(rate.at(4), 0.4);
}

TEST(LearningRate, TheDecayGoesOnUnderneathTheWarmUp) {
  TrainingOptions training = training_with("linear");
  training.warmup = 10;
  const LearningRate rate(training, 100);
  EXPECT_NEAR(rate.at(4), 0.4 * 0.96 * 0.5, kTolerance);
  EXPECT_NEAR(rate.at(9), 0.4 * 0.91, kTolerance);
  EXPECT_NEAR(rate.at(10), 0.4 * 0.90, kTolerance);
}

TEST(LearningRate, TheScheduleBeginsAfterItsDelay) {
  for (const std::string schedule : {"steps", "cosine", "linear"}) {
    const TrainingOptions training = training_with(schedule);
    TrainingOptions delayed = training;
    delayed.lr_delay = 30;
    const LearningRate plain(training, 100), shifted(delayed, 130);
    for (const std::int64_t step : {0, 1, 29, 30}) EXPECT_EQ(shifted.at(step), 0.4) << schedule;
    for (std::int64_t step = 0; step < 100; ++step)
      EXPECT_EQ(shifted.at(30 + step), plain.at(step)) << schedule;
  }
}

TEST(LearningRate, WarmUpIsAtTheStartOfTheRunWhateverTheDelay) {
  TrainingOptions training = training_with("linear");
  training.warmup = 4;
  training.lr_delay = 10;
  const LearningRate rate(training, 20);
  EXPECT_NEAR(rate.at(1), 0.2, kTolerance);
  EXPECT_EQ(rate.at(10), 0.4);
  EXPECT_NEAR(rate.at(15), 0.2, kTolerance);
}

TEST(LearningRate, ADelayAsLongAsTheRunIsAMistake) {
  TrainingOptions training = training_with("cosine");
  training.lr_delay = 20;
  EXPECT_NO_THROW(LearningRate(training, 21));
  EXPECT_THROW(LearningRate(training, 20), UserError);
}

TEST(LearningRate, OfNoStepsIsABrokenInvariant) {
  EXPECT_THROW(LearningRate(training_with("cosine"), 0), std::logic_error);
}

}  // namespace
}  // namespace lowtide
