#include "lowtide/train/step_graph.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include "lowtide/schedule/bits.h"
#include "lowtide/tasks/image_setup.h"
#include "lowtide/tasks/setup.h"
#include "lowtide/train/optimizer.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

// A small network on one batch, whose steps can be captured.
class Steps {
 public:
  Steps(const std::string& engine, const torch::Device& device, bool captured)
      : recipe_(recipe_for(engine, device)) {
    execution_ = make_execution(recipe_.precision, recipe_.running, recipe_.training.seed);
    model_ = make_image_model("cifar-resnet8", {3, 16, 16, 10}, {}, execution_);
    model_->to(device);
    optimizer_ = make_optimizer(recipe_.training, *model_);
    halted_ = torch::zeros({}, torch::TensorOptions(torch::kBool).device(device));
    images_ = normal({12, 3, 16, 16}, 5).contiguous(torch::MemoryFormat::ChannelsLast).to(device);
    labels_ = torch::arange(12, torch::kInt64).remainder(10).to(device);
    if (captured) graph_ = std::make_unique<StepGraph>(*model_, *execution_, device);
  }

  void step(Bits bits, double rate) {
    execution_->bits = bits;
    const auto work = [&] {
      model_->zero_grad(/*set_to_none=*/true);
      torch::cross_entropy_loss(model_->forward(images_), labels_).backward();
      optimizer_->step(rate, halted_, graph_ ? graph_->parameters() : nullptr);
    };
    if (graph_) {
      graph_->run(rate, work);
    } else {
      work();
    }
    ++execution_->step;
  }

  torch::Tensor evaluate(Bits bits) {
    const torch::NoGradGuard no_grad;
    execution_->bits = bits;
    model_->eval();
    torch::Tensor logits = model_->forward(images_).cpu();
    model_->train();
    return logits;
  }

  std::map<std::string, torch::Tensor> state() const {
    std::map<std::string, torch::Tensor> all;
    for (const auto& item : model_->named_parameters()) all[item.key()] = item.value().detach().cpu();
    for (const auto& item : model_->named_buffers()) all[item.key()] = item.value().cpu();
    return all;
  }
  const StepGraph& graph() const { return *graph_; }

 private:
  static Recipe recipe_for(const std::string& engine, const torch::Device& device) {
    Recipe recipe;
    recipe.precision.engine = engine;
    recipe.running.device = device.is_cuda() ? "cuda" : "cpu";
    return recipe;
  }

  Recipe recipe_;
  std::shared_ptr<Execution> execution_;
  std::shared_ptr<ImageModel> model_;
  std::unique_ptr<Optimizer> optimizer_;
  torch::Tensor halted_, images_, labels_;
  std::unique_ptr<StepGraph> graph_;
};

void expect_same_state(const Steps& actual, const Steps& expected) {
  const auto wanted = expected.state();
  for (const auto& [name, value] : actual.state()) EXPECT_TRUE(same(value, wanted.at(name))) << name;
}

TEST(StepGraph, OnACpuStepsAreMadeAsTheyAre) {
  Steps plain("simulated", torch::kCPU, false), captured("simulated", torch::kCPU, true);
  for (int i = 0; i < 3; ++i) {
    plain.step({8, 8}, 0.1);
    captured.step({8, 8}, 0.1);
  }
  expect_same_state(captured, plain);
  EXPECT_EQ(captured.graph().captures(), 0);
}

class CudaStepGraph : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device, or a build without CUDA";
    at::globalContext().setDeterministicCuDNN(true);  // of layers that are not codes of bytes
  }
};

// Bits, rate and noise of every step are its own, in one capture.
TEST_F(CudaStepGraph, ReplaysGiveTheBitsOfStepsMadeAsTheyAre) {
  Steps plain("cuda", torch::kCUDA, false), captured("cuda", torch::kCUDA, true);
  for (int i = 0; i < 24; ++i) {
    const Bits bits{3 + i % 6, 5 + i % 4};
    const double rate = 0.1 / (1 + i);
    plain.step(bits, rate);
    captured.step(bits, rate);
  }
  expect_same_state(captured, plain);
  EXPECT_EQ(captured.graph().captures(), 1);
  EXPECT_GT(captured.graph().kernels(), 0);
}

TEST_F(CudaStepGraph, AnEvaluationHasBitsOfItsOwn) {
  Steps plain("cuda", torch::kCUDA, false), captured("cuda", torch::kCUDA, true);
  for (int i = 0; i < 4; ++i) {
    plain.step({3, 8}, 0.1);
    captured.step({3, 8}, 0.1);
  }
  const torch::Tensor expected = plain.evaluate({8, 8});
  EXPECT_TRUE(same(captured.evaluate({8, 8}), expected));
  EXPECT_FALSE(same(captured.evaluate({3, 8}), expected));
}

TEST_F(CudaStepGraph, CodesOfAnotherTypeAreCapturedAnew) {
  Steps plain("cuda", torch::kCUDA, false), captured("cuda", torch::kCUDA, true);
  for (const Bits bits : {Bits{8, 8}, Bits{0, 0}, Bits{12, 8}}) {
    for (int i = 0; i < 5; ++i) {
      plain.step(bits, 0.05);
      captured.step(bits, 0.05);
    }
  }
  expect_same_state(captured, plain);
  EXPECT_EQ(captured.graph().captures(), 3);
}

}  // namespace
}  // namespace lowtide
