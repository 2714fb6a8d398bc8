// The optimisers' kernels on a GPU against the CPU's loops.
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lowtide/quant/step_parameters.h"
#include "lowtide/train/optimizer.h"
#include "tests/testing.h"
#include "tests/train/optimizer_steps.h"
#if defined(LOWTIDE_WITH_CUDA)
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace lowtide {
namespace {

// More tensors than a launch has room for (Adam's 102, SGD's 129, a norm's 266), of sizes on both sides of the
// kernels' chunks of 2048 numbers, and some of none.
struct ManyParameters : torch::nn::Module {
  explicit ManyParameters(torch::Device device) {
    const std::vector<std::vector<std::int64_t>> sizes{{1},      {31}, {2048}, {2049},       {3, 5, 7},
                                                       {64, 32}, {0},  {4095}, {8, 4, 3, 3}, {3, 4097}};
    for (std::uint64_t i = 0; i < 300; ++i)
      parameters.push_back(register_parameter("p" + std::to_string(i), normal(sizes[i % sizes.size()], i)));
    for (torch::Tensor& parameter : parameters) parameter.set_data(parameter.detach().to(device));
  }

  void set_gradients(std::uint64_t step) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const torch::Tensor gradient = normal(parameters[i].sizes(), 1000 * step + i);
      parameters[i].mutable_grad() = gradient.to(parameters[i].device());
    }
  }

  std::vector<torch::Tensor> parameters;
};

std::vector<torch::Tensor> on_cpu(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copies;
  copies.reserve(tensors.size());
  for (const torch::Tensor& tensor : tensors)
    copies.push_back(tensor.detach().to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true));
  return copies;
}

// Parameters and state.
std::vector<torch::Tensor> everything(const std::vector<torch::Tensor>& parameters,
                                      const Optimizer& optimizer) {
  std::vector<torch::Tensor> all = parameters;
  for (const auto& [name, tensor] : optimizer.tensors()) all.push_back(tensor);
  return on_cpu(all);
}

void expect_all_same(const std::vector<torch::Tensor>& actual, const std::vector<torch::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    ASSERT_TRUE(same(actual[i], expected[i])) << "tensor " << i << " of " << actual.size();
}

const torch::Device kCpu(torch::kCPU), kGpu(torch::kCUDA, 0);

class OptimizerOnCuda : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device, or a build without CUDA";
  }

  static std::unique_ptr<Optimizer> make(torch::nn::Module& model,
                                         const std::vector<std::string>& decay_layers = {"p1*", "p?5"}) {
    TrainingOptions training;
    training.optimizer = GetParam();
    training.weight_decay = 0.05;
    training.decay_layers = decay_layers;
    return make_optimizer(training, model);
  }
  static torch::Tensor flag_on_gpu(bool value) { return flag(value).to(kGpu); }
};

// Every rounding is the CPU's. Only a power is computed otherwise: 2 units in the last place of a double, 2^-52,
// are 2^-42 of a correction of 0.001 or more, and the float made of that, of 24 bits, is another for one in 2^17.
TEST_P(OptimizerOnCuda, GivesTheBitsOfTheCpu) {
  ManyParameters here(kCpu), there(kGpu);
  const auto expected = make(here), actual = make(there);
  const torch::Tensor go_here = flag(false), go_there = flag_on_gpu(false);
  for (int step = 0; step < 4; ++step) {
    here.set_gradients(step);
    there.set_gradients(step);
    expected->step(rate_at(step), go_here);
    actual->step(rate_at(step), go_there);
    SCOPED_TRACE(testing::Message() << "step " << step);
    expect_all_same(everything(there.parameters, *actual), everything(here.parameters, *expected));
    EXPECT_EQ(actual->state(), expected->state());
  }
}

TEST_P(OptimizerOnCuda, ATrueHaltLeavesEveryByte) {
  ManyParameters model(kGpu);
  const auto optimizer = make(model);
  model.set_gradients(0);
  optimizer->step(0.1, flag_on_gpu(false));
  const std::vector<torch::Tensor> before = everything(model.parameters, *optimizer);
  const Json state = optimizer->state();
  for (torch::Tensor& parameter : model.parameters)
    parameter.mutable_grad().fill_(std::numeric_limits<float>::quiet_NaN());
  optimizer->step(0.1, flag_on_gpu(true));
  expect_all_same(everything(model.parameters, *optimizer), before);
  EXPECT_EQ(optimizer->state(), state);
}

TEST_P(OptimizerOnCuda, GradientsMayLieOtherwiseInMemory) {
  const std::vector<std::int64_t> sizes{40, 130, 3, 3};
  const auto rows = torch::MemoryFormat::Contiguous, last = torch::MemoryFormat::ChannelsLast;
  const std::vector<std::function<torch::Tensor(const torch::Tensor&)>> layouts{
      [&](const torch::Tensor& x) { return x.contiguous(rows); },
      [&](const torch::Tensor& x) { return x.contiguous(last); },
      [&](const torch::Tensor& x) {
        return torch::stack({x, x}, -1).select(-1, 0);
      },  // with gaps
      [&](const torch::Tensor& x) {
        return torch::cat({x, x}, 0).narrow(0, 40, 40);
      }};
  const auto train = [&](torch::Device device, torch::MemoryFormat of_parameter, const auto& layout) {
    Kernel model;
    model.weight.set_data(model.weight.detach().to(device).contiguous(of_parameter));
    const auto optimizer = make(model, {});
    for (int step = 0; step < 3; ++step) {
      model.weight.mutable_grad() = layout(normal(sizes, 100 + step).to(device));
      optimizer->step(0.1, flag(false).to(device));
    }
    return everything({model.weight}, *optimizer);
  };
  const std::vector<torch::Tensor> expected = train(kCpu, rows, layouts[0]);
  for (const auto of_parameter : {rows, last}) {
    for (const auto& layout : layouts) expect_all_same(train(kGpu, of_parameter, layout), expected);
  }
}

// Step parameters on the device, as they are written for steps that are replayed.
class DeviceRate {
 public:
  explicit DeviceRate(double rate) { set(rate); }
  void set(double rate) {
    auto values = std::make_unique<StepParameters>();
    values->rate = rate;
    const auto bytes = static_cast<std::int64_t>(sizeof(StepParameters));
    memory_.copy_(torch::from_blob(values.get(), {bytes}, torch::kByte));
  }
  const StepParameters* get() const { return static_cast<const StepParameters*>(memory_.data_ptr()); }

 private:
  torch::Tensor memory_ = torch::empty({static_cast<std::int64_t>(sizeof(StepParameters))},
                                       torch::TensorOptions(torch::kByte).device(kGpu));
};

TEST_P(OptimizerOnCuda, ReadsTheRateOnTheDevice) {
  ManyParameters told(kGpu), reads(kGpu);
  const auto one = make(told), other = make(reads);
  const torch::Tensor go = flag_on_gpu(false);
  for (int step = 0; step < 3; ++step) {
    told.set_gradients(step);
    reads.set_gradients(step);
    const DeviceRate rate(rate_at(step));
    one->step(rate_at(step), go);
    other->step(1e9, go, rate.get());
  }
  expect_all_same(everything(reads.parameters, *other), everything(told.parameters, *one));
}

#if defined(LOWTIDE_WITH_CUDA)
// Clipping and update are captured once and replayed with other gradients, rates and flags.
TEST_P(OptimizerOnCuda, CanBeReplayed) {
  ManyParameters plain(kGpu), captured(kGpu);
  const auto one = make(plain), other = make(captured);
  const torch::Tensor halted = flag_on_gpu(false);
  DeviceRate rate(0);
  captured.set_gradients(0);
  // Kernels are loaded when they are first launched, which is not for a capture.
  clip_gradients(captured.parameters, 1);
  other->step(0, flag_on_gpu(true));
  at::cuda::CUDAGraph graph;
  torch::Tensor norm;
  torch::cuda::synchronize();
  {
    const c10::cuda::CUDAStreamGuard on_another(c10::cuda::getStreamFromPool());
    graph.capture_begin();
    norm = clip_gradients(captured.parameters, 1);
    other->step(0, halted, rate.get());
    graph.capture_end();
  }
  for (int step = 0; step < 4; ++step) {
    plain.set_gradients(step);
    for (std::size_t i = 0; i < captured.parameters.size(); ++i)
      captured.parameters[i].mutable_grad().copy_(plain.parameters[i].grad());
    rate.set(rate_at(step));
    halted.fill_(step == 2);
    const torch::Tensor expected = clip_gradients(plain.parameters, 1);
    one->step(rate_at(step), halted);
    graph.replay();
    EXPECT_TRUE(same(norm, expected));
  }
  expect_all_same(everything(captured.parameters, *other), everything(plain.parameters, *one));
}
#endif

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerOnCuda, testing::Values("sgd", "adam", "adamw"),
                         [](const auto& instance) { return instance.param; });

class ClipGradientsOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device, or a build without CUDA";
    model_ = std::make_unique<ManyParameters>(kGpu);
    model_->set_gradients(1);
    model_->parameters[8].mutable_grad() =
        model_->parameters[8].grad().contiguous(torch::MemoryFormat::ChannelsLast);
    before_ = gradients();
    double sum = 0;
    for (const torch::Tensor& gradient : before_)
      sum += gradient.to(torch::kDouble).square().sum().item<double>();
    norm_ = std::sqrt(sum);
  }

  std::vector<torch::Tensor> gradients() const {
    std::vector<torch::Tensor> result;
    for (const torch::Tensor& parameter : model_->parameters) result.push_back(parameter.grad());
    return on_cpu(result);
  }

  // Sums of doubles, rounded to a float at the end.
  void expect_norm(const torch::Tensor& norm) const {
    EXPECT_TRUE(norm.is_cuda());
    EXPECT_EQ(norm.dim(), 0);
    EXPECT_NEAR(norm.item<double>(), norm_, norm_ * 0x1p-23);
  }

  std::unique_ptr<ManyParameters> model_;
  std::vector<torch::Tensor> before_;
  double norm_ = 0;
};

TEST_F(ClipGradientsOnCuda, BelowTheLimitOnlyMeasures) {
  for (const double limit : {0.0, 2 * norm_}) {
    expect_norm(clip_gradients(model_->parameters, limit));
    expect_all_same(gradients(), before_);
  }
}

TEST_F(ClipGradientsOnCuda, TheNormIsTheSameEachTime) {
  const torch::Tensor first = clip_gradients(model_->parameters, 0);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(same(clip_gradients(model_->parameters, 0), first));
}

// The norm, what is added to it, the quotient and the product are rounded: 4 · 2^-24.
TEST_F(ClipGradientsOnCuda, AboveTheLimitKeepsTheDirection) {
  expect_norm(clip_gradients(model_->parameters, 0.25));
  const std::vector<torch::Tensor> after = gradients();
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i].numel() == 0) continue;
    EXPECT_TRUE(close_to(after[i], before_[i].to(torch::kDouble) * (0.25 / (norm_ + 1e-6)), 0x1p-22)) << i;
  }
}

TEST_F(ClipGradientsOnCuda, TheNormTellsOfAGradientThatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t place : {std::size_t{0}, std::size_t{3}, model_->parameters.size() - 1}) {
      model_->set_gradients(1);
      model_->parameters[place].mutable_grad().view(-1)[-1] = bad;
      EXPECT_FALSE(std::isfinite(clip_gradients(model_->parameters, 1).item<double>()));
      const std::vector<torch::Tensor> after = gradients();
      for (std::size_t i = 0; i < after.size(); ++i) {
        EXPECT_TRUE(i == place || same(after[i], before_[i])) << "so that its place can be found";
      }
    }
  }
}

// With gaps, which the kernels do not step over.
TEST_F(ClipGradientsOnCuda, AGradientWithGapsIsClippedToo) {
  torch::Tensor& gradient = model_->parameters[4].mutable_grad();
  gradient = torch::stack({gradient, gradient}, -1).select(-1, 0);
  // libtorch's norm, of floats: sums of up to 12291 terms in a tree, then of 300 norms.
  EXPECT_NEAR(clip_gradients(model_->parameters, 0.25).item<double>(), norm_, norm_ * 1e-5);
  EXPECT_TRUE(close_to(gradients()[4], before_[4].to(torch::kDouble) * (0.25 / norm_), 1e-5));
}

}  // namespace
}  // namespace lowtide
