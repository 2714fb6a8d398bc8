#include "lowtide/train/weight_plane.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lowtide/models/image_model.h"
#include "lowtide/tasks/task.h"
#include "tests/io/scratch.h"
#include "tests/testing.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

std::shared_ptr<ImageModel> small_model(std::uint64_t seed) {
  auto model = image_model("cifar-resnet8").make(1, 10);
  initialise(*model, seed);
  return model;
}

TEST(WeightPlane, FiltersOfADirectionAreAsLongAsTheModels) {
  const auto model = small_model(1);
  const WeightPlane plane(*model, 3);
  ASSERT_FALSE(plane.weights().empty());
  for (const WeightPlane::Weight& weight : plane.weights()) {
    const torch::Tensor expected = weight.centre.to(torch::kDouble).flatten(1).norm(2, 1);
    for (const torch::Tensor& along : {weight.along_x, weight.along_y}) {
      // Each element is rounded to float once: half an ulp, 6e-8, at most.
      EXPECT_TRUE(close_to(along.to(torch::kDouble).flatten(1).norm(2, 1), expected, 1e-7));
    }
    // Random directions in hundreds of dimensions are all but perpendicular: the deviation of a cosine is
    // 1/sqrt(n), five of them are not met by chance.
    const double cosine = (weight.along_x * weight.along_y).sum().item<double>() /
                          (weight.along_x.norm() * weight.along_y.norm()).item<double>();
    EXPECT_LT(std::abs(cosine), 5 / std::sqrt(static_cast<double>(weight.centre.numel())));
  }
}

TEST(WeightPlane, BiasesAndNormalisationsStay) {
  const auto model = small_model(1);
  std::vector<torch::Tensor> before;
  for (const auto& parameter : model->parameters()) before.push_back(parameter.detach().clone());
  WeightPlane plane(*model, 3);
  plane.move_to(0.5, -0.25);
  std::size_t moved = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const bool same_now = model->parameters()[i].equal(before[i]);
    EXPECT_EQ(same_now, before[i].dim() < 2) << i;
    moved += same_now ? 0 : 1;
  }
  EXPECT_EQ(moved, plane.weights().size());
}

TEST(WeightPlane, MovesAlongItsDirectionsAndBackToTheBit) {
  const auto model = small_model(1);
  WeightPlane plane(*model, 3);
  plane.move_to(-0.5, 2);
  for (const WeightPlane::Weight& weight : plane.weights())
    EXPECT_TRUE(same(weight.parameter.detach(), weight.centre - 0.5 * weight.along_x + 2 * weight.along_y));
  plane.move_to(0, 0);
  for (const WeightPlane::Weight& weight : plane.weights())
    EXPECT_TRUE(same(weight.parameter.detach(), weight.centre));
}

TEST(WeightPlane, TheSeedSaysWhereItGoesWhateverTheWeightsAre) {
  const auto one = small_model(1), other = small_model(2);
  const WeightPlane plane(*one, 3), again(*one, 3), elsewhere(*one, 4), of_other(*other, 3);
  for (std::size_t i = 0; i < plane.weights().size(); ++i) {
    const torch::Tensor& along = plane.weights()[i].along_x;
    EXPECT_TRUE(same(again.weights()[i].along_x, along));
    EXPECT_FALSE(elsewhere.weights()[i].along_x.equal(along));
    // Of the other model the same numbers, at its own lengths: scaled to length 1, two roundings of each apart.
    const auto unit = [](const torch::Tensor& t) {
      return t.to(torch::kDouble).flatten(1) / t.to(torch::kDouble).flatten(1).norm(2, 1, /*keepdim=*/true);
    };
    EXPECT_TRUE(close_to(unit(of_other.weights()[i].along_x), unit(along), 3e-7));
  }
}

TEST(WeightPlane, AFilterOfZerosIsNotMoved) {
  const auto model = small_model(1);
  const torch::Tensor first = model->parameters()[0];
  {
    const torch::NoGradGuard no_grad;
    first[0].zero_();
  }
  WeightPlane plane(*model, 3);
  plane.move_to(1, 1);
  EXPECT_EQ(first[0].abs().max().item<float>(), 0.0f);
  EXPECT_GT(first[1].abs().max().item<float>(), 0.0f);
}

TEST(WeightPlane, TheLossAtTheCentreIsTheEvaluatedOne) {
  const ScratchFolder folder;
  write_small_dataset(folder.path());
  const auto task = make_task(small_recipe(folder.path()));
  // At fp32: with bits, activations would have the ranges of a model that has seen no data, which are empty.
  const auto loss = [&] { return task->evaluate(Split::kTrain, {0, 0}).loss; };
  const double before = loss();
  WeightPlane plane(task->model(), 1);
  plane.move_to(0.5, 0.5);
  EXPECT_NE(loss(), before);
  plane.move_to(0, 0);
  EXPECT_EQ(loss(), before);
}

TEST(TaskSample, IsSoManyItemsAndTheSameEachTime) {
  const ScratchFolder folder;
  write_small_dataset(folder.path());
  const auto task = make_task(small_recipe(folder.path()));
  for (const auto& [split, all] : {std::pair(Split::kTrain, 250), {Split::kValid, 50}, {Split::kTest, 60}}) {
    const Evaluation some = task->evaluate_sample(split, {8, 8}, 30);
    EXPECT_EQ(some.items, 30);
    EXPECT_EQ(task->evaluate_sample(split, {8, 8}, 30).loss, some.loss);
    const Evaluation whole = task->evaluate(split, {8, 8});
    EXPECT_NE(whole.loss, some.loss);
    for (const std::int64_t as_many : {all, all + 1}) {
      EXPECT_EQ(task->evaluate_sample(split, {8, 8}, as_many).items, all);
      EXPECT_EQ(task->evaluate_sample(split, {8, 8}, as_many).loss, whole.loss);
    }
  }
}

}  // namespace
}  // namespace lowtide
