#include "lowtide/train/weight_average.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing.h"

namespace lowtide {
namespace {

struct OneParameter : torch::nn::Module {
  OneParameter() { weight = register_parameter("weight", torch::zeros({3})); }
  void set(double value) {
    const torch::NoGradGuard no_grad;
    weight.fill_(value);
  }
  torch::Tensor weight;
};

// The weight after step t is t²; steps first to last are observed.
void train(OneParameter& model, WeightAverage& average, int first, int last) {
  for (int step = first; step <= last; ++step) {
    model.set(step * step);
    average.observe(step, torch::tensor(false));
  }
}

TEST(WeightAverage, IsTheMeanOfTheWeightsTaken) {
  OneParameter model;
  WeightAverage average(model, 10, 5);
  train(model, average, 1, 26);
  EXPECT_EQ(average.count(), 3);  // after steps 15, 20 and 25
  ASSERT_EQ(average.tensors().size(), 1);
  EXPECT_EQ(average.tensors()[0].first, "weight");
  const torch::Tensor expected = torch::full({3}, (15 * 15 + 20 * 20 + 25 * 25) / 3.0);
  EXPECT_TRUE(close_to(average.tensors()[0].second, expected, 1e-6));
  EXPECT_TRUE(same(model.weight.detach(), torch::full({3}, 26.0f * 26))) << "observing changes nothing";
  average.copy_to_model();
  EXPECT_TRUE(close_to(model.weight.detach(), expected, 1e-6));
}

TEST(WeightAverage, TakesNothingBeforeTheStart) {
  OneParameter model;
  WeightAverage average(model, 10, 5);
  train(model, average, 1, 14);
  EXPECT_EQ(average.count(), 0);
  EXPECT_TRUE(average.tensors().empty());
  average.copy_to_model();
  EXPECT_TRUE(same(model.weight.detach(), torch::full({3}, 14.0f * 14))) << "there is nothing to copy";
}

TEST(WeightAverage, OneWeightIsItsOwnMean) {
  OneParameter model;
  WeightAverage average(model, 0, 1);
  model.set(0.1);
  average.observe(1, torch::tensor(false));
  EXPECT_EQ(average.count(), 1);
  EXPECT_TRUE(same(average.tensors()[0].second, torch::full({3}, 0.1f)));
}

// Whatever the weights have become.
TEST(WeightAverage, AHaltLeavesItAlone) {
  OneParameter model;
  WeightAverage average(model, 0, 1);
  model.set(std::nan(""));
  average.observe(1, torch::tensor(true));
  EXPECT_EQ(average.count(), 0);
  EXPECT_TRUE(average.tensors().empty());

  train(model, average, 1, 3);
  const torch::Tensor mean = average.tensors().at(0).second.clone();
  model.set(std::nan(""));
  average.observe(4, torch::tensor(true));
  EXPECT_EQ(average.count(), 3);
  EXPECT_TRUE(same(average.tensors()[0].second, mean));
}

TEST(WeightAverage, GoesOnExactlyFromItsSavedState) {
  OneParameter model;
  WeightAverage whole(model, 10, 5);
  train(model, whole, 1, 40);

  WeightAverage first(model, 10, 5);
  train(model, first, 1, 22);
  WeightAverage second(model, 10, 5);
  second.restore(first.state());
  ASSERT_EQ(second.tensors().size(), 1);
  second.tensors()[0].second.copy_(first.tensors()[0].second);
  train(model, second, 23, 40);
  EXPECT_EQ(second.count(), whole.count());
  EXPECT_TRUE(same(second.tensors()[0].second, whole.tensors()[0].second));

  WeightAverage empty(model, 10, 5);
  WeightAverage restored(model, 10, 5);
  restored.restore(empty.state());
  EXPECT_TRUE(restored.tensors().empty());
}

}  // namespace
}  // namespace lowtide
