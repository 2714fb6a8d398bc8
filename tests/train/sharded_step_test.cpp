#include "lowtide/train/sharded_step.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "lowtide/tasks/image_setup.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {
namespace {

// Two shards of different images, by a network with batch norm, ranges and stochastic rounding.
class TwoShards : public testing::Test {
 protected:
  TwoShards() {
    Recipe recipe;
    recipe.precision.engine = "simulated";
    execution_ = make_execution(recipe.precision, recipe.running, recipe.training.seed);
    execution_->bits = {4, 6};
    execution_->step = 3;
    model_ = make_image_model("cifar-resnet8", {3, 8, 8, 10}, {}, execution_);
    torch::manual_seed(1);
    images_ = torch::randn({8, 3, 8, 8}).contiguous(torch::MemoryFormat::ChannelsLast);
    labels_ = torch::randint(10, {8});
  }

  // The images of one shard, and the noise of whichever the execution says.
  StepResult compute(std::int64_t shard) const {
    const torch::Tensor loss = torch::cross_entropy_loss(model_->forward(images_.narrow(0, 4 * shard, 4)),
                                                         labels_.narrow(0, 4 * shard, 4));
    loss.backward();
    return {.loss = loss.detach(), .items = 4, .share = 0.5};
  }

  struct Plain {
    std::vector<torch::Tensor> gradients, moves;
    torch::Tensor loss;
  };

  // A step that knows of no other shard; the buffers are left as they were.
  Plain plain(std::int64_t images, std::uint32_t noise) const {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> before;
    for (const torch::Tensor& buffer : model_->buffers()) before.push_back(buffer.clone());
    execution_->shard = noise;
    model_->zero_grad(/*set_to_none=*/true);
    Plain step;
    {
      const torch::AutoGradMode with_gradients(true);
      step.loss = compute(images).loss;
    }
    for (const torch::Tensor& parameter : model_->parameters())
      step.gradients.push_back(parameter.grad().clone());
    for (std::size_t i = 0; i < before.size(); ++i) {
      step.moves.push_back(model_->buffers()[i] - before[i]);
      model_->buffers()[i].copy_(before[i]);
    }
    model_->zero_grad(/*set_to_none=*/true);
    return step;
  }

  static torch::Tensor mean(const torch::Tensor& a, const torch::Tensor& b) { return a * 0.5 + b * 0.5; }

  std::shared_ptr<Execution> execution_;
  std::shared_ptr<ImageModel> model_;
  torch::Tensor images_, labels_;
};

TEST_F(TwoShards, AreTheMeanOfTwoStepsFromTheSameBuffers) {
  const Plain first = plain(0, 0), second = plain(1, 1);
  std::vector<torch::Tensor> buffers;
  for (const torch::Tensor& buffer : model_->buffers()) buffers.push_back(buffer.clone());
  ASSERT_FALSE(buffers.empty());
  ShardedStep sharded({*model_, *execution_, [] {}, [this] { return compute(execution_->shard); }}, alone(),
                      2);
  const StepResult result = sharded.run();
  EXPECT_TRUE(result.loss.equal(mean(first.loss, second.loss)));
  EXPECT_EQ(result.items, 8);
  const std::vector<torch::Tensor> parameters = model_->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    EXPECT_TRUE(parameters[i].grad().equal(mean(first.gradients[i], second.gradients[i]))) << i;
  for (std::size_t i = 0; i < buffers.size(); ++i)
    EXPECT_TRUE(model_->buffers()[i].equal(buffers[i] + mean(first.moves[i], second.moves[i]))) << i;
}

TEST_F(TwoShards, HaveNoiseOfTheirOwn) {
  const Plain first = plain(0, 0), other = plain(0, 1), again = plain(0, 0);
  EXPECT_TRUE(first.loss.equal(other.loss)) << "the forward pass rounds to the nearest";
  bool differs = false;
  for (std::size_t i = 0; i < first.gradients.size(); ++i) {
    EXPECT_TRUE(first.gradients[i].equal(again.gradients[i])) << i;
    differs = differs || !first.gradients[i].equal(other.gradients[i]);
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace lowtide
