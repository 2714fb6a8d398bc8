#include "lowtide/nn/quant_layer.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <functional>

#include "lowtide/nn/quant_conv2d.h"
#include "lowtide/nn/quant_linear.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

// The kinds of layer, so that what both must do is written once.
struct Kind {
  std::string name;
  std::vector<std::int64_t> input;
  // The layer with its parameters drawn, and the product it stands for, on any weight and bias.
  std::shared_ptr<torch::nn::Module> (*make)();
  torch::Tensor (*product)(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);
  torch::Tensor (*call)(torch::nn::Module& layer, const torch::Tensor& x);
  bool quantises_bias;
};

void fill(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  std::uint64_t seed = 100;
  for (auto& parameter : module.parameters()) parameter.copy_(normal(parameter.sizes(), seed++));
}

template <typename Layer, typename Options>
std::shared_ptr<torch::nn::Module> filled(const Options& options) {
  auto layer = std::make_shared<Layer>(options);
  fill(*layer);
  return layer;
}

const std::vector<Kind> kKinds{
    {"conv",
     {5, 6, 9, 7},
     [] {
       return filled<QuantConv2dImpl>(QuantConv2dOptions{.in_channels = 6,
                                                         .out_channels = 8,
                                                         .kernel = 3,
                                                         .stride = 2,
                                                         .padding = 1,
                                                         .groups = 2,
                                                         .bias = true});
     },
     [](const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
       return torch::conv2d(x, weight, bias, 2, 1, 1, 2);
     },
     [](torch::nn::Module& layer, const torch::Tensor& x) { return layer.as<QuantConv2dImpl>()->forward(x); },
     false},
    {"linear",
     {7, 13},
     [] {
       return filled<QuantLinearImpl>(QuantLinearOptions{13, 5});
     },
     [](const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
       return torch::linear(x, weight, bias);
     },
     [](torch::nn::Module& layer, const torch::Tensor& x) { return layer.as<QuantLinearImpl>()->forward(x); },
     true},
    {"linear_of_sequences",
     {3, 4, 13},
     [] {
       return filled<QuantLinearImpl>(QuantLinearOptions{13, 5, ErrorRange::kPosition});
     },
     [](const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
       return torch::linear(x, weight, bias);
     },
     [](torch::nn::Module& layer, const torch::Tensor& x) { return layer.as<QuantLinearImpl>()->forward(x); },
     true},
    {"linear_of_four_dimensions",
     {2, 3, 4, 13},
     [] {
       return filled<QuantLinearImpl>(QuantLinearOptions{13, 5});
     },
     [](const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
       return torch::linear(x, weight, bias);
     },
     [](torch::nn::Module& layer, const torch::Tensor& x) { return layer.as<QuantLinearImpl>()->forward(x); },
     true},
};

torch::Tensor through(const torch::Tensor& x, RangeGroup group, int bits,
                      const Noise& noise = Noise::none()) {
  return is_float_bits(bits) ? x : decode(encode(x, measure_range(x, group), bits, noise));
}

// The error of a linear layer over batch × positions has a range for each position, over the batch; any other one for all.
torch::Tensor rounded_error(const torch::Tensor& error, bool by_position, int bits, const Noise& noise) {
  if (!by_position || is_float_bits(bits)) return through(error, RangeGroup::kTensor, bits, noise);
  const std::int64_t items = error.size(0);
  const torch::Tensor rows = error.reshape({items, -1, error.size(-1)});
  const torch::Tensor low = rows.amin({0, 2}), high = rows.amax({0, 2});
  const Range range{low.repeat({items}), (high - low).repeat({items})};
  return decode(encode(error.reshape({-1, error.size(-1)}), range, bits, noise)).view(error.sizes());
}

struct Gradients {
  torch::Tensor y, x, weight, bias;
};

// Sums of some 60 float32 products on either side, in another order.
constexpr double kTolerance = 1e-5;

void expect_close(const Gradients& actual, const Gradients& expected) {
  EXPECT_TRUE(close_to(actual.y, expected.y, kTolerance)) << "output";
  EXPECT_TRUE(close_to(actual.x, expected.x, kTolerance)) << "input gradient";
  EXPECT_TRUE(close_to(actual.weight, expected.weight, kTolerance)) << "weight gradient";
  EXPECT_TRUE(close_to(actual.bias, expected.bias, kTolerance)) << "bias gradient";
}

class QuantLayers : public testing::TestWithParam<Kind> {
 protected:
  static constexpr std::uint32_t kId = 3;

  QuantLayers() {
    execution_->seed = 42;
    execution_->step = 17;
    dynamic_cast<QuantLayer&>(*layer_).attach(execution_, "layer", kId);
  }

  torch::Tensor weight() const { return layer_->named_parameters()["weight"]; }
  torch::Tensor bias() const { return layer_->named_parameters()["bias"]; }
  float buffer(const std::string& name) const { return layer_->named_buffers()[name].item<float>(); }
  torch::Tensor call(const torch::Tensor& x) { return GetParam().call(*layer_, x); }

  // One forward and backward pass of the layer; `between` runs between the two.
  Gradients run(const std::function<void()>& between = [] {}) {
    layer_->zero_grad();
    const torch::Tensor x = x_.clone().requires_grad_();
    const torch::Tensor y = call(x);
    between();
    y.backward(error_of(y));
    return {y.detach(), x.grad(), weight().grad().clone(), bias().grad().clone()};
  }

  torch::Tensor error_of(const torch::Tensor& y) const { return normal(y.sizes(), 9); }

  // The same by autograd on values quantised by hand. Straight through: the gradient is that of the product
  // at the quantised values. The weight's gradient may have an error of its own.
  Gradients expected(Bits bits, const Noise& noise = Noise::none(), bool bifurcate = false) {
    const torch::Tensor x = through(x_, RangeGroup::kTensor, bits.forward).clone().requires_grad_();
    const torch::Tensor w =
        through(weight().detach(), RangeGroup::kRow, bits.forward).clone().requires_grad_();
    const int bias_bits = GetParam().quantises_bias ? bits.forward : 0;
    const torch::Tensor b = through(bias().detach(), RangeGroup::kTensor, bias_bits).clone().requires_grad_();
    const torch::Tensor y = GetParam().product(x, w, b);
    const torch::Tensor error = error_of(y);
    const bool by_position = GetParam().quantises_bias && error.dim() == 3;  // a linear layer's
    const torch::Tensor rounded = rounded_error(error, by_position, bits.backward, noise);
    const torch::Tensor dx = torch::autograd::grad({y}, {x}, {rounded}, true)[0];
    const auto parameters = torch::autograd::grad({y}, {w, b}, {bifurcate ? error : rounded});
    return {y.detach(), dx, parameters[0], parameters[1]};
  }

  const std::shared_ptr<Execution> execution_ = execution_at({});
  const std::shared_ptr<torch::nn::Module> layer_ = GetParam().make();
  const torch::Tensor x_ = uniform(GetParam().input, -1, 3, 7);
};

TEST_P(QuantLayers, WithoutBitsAreThePlainLayer) {
  for (const Bits bits : {Bits{0, 0}, Bits{32, 32}, Bits{24, 0}}) {
    execution_->bits = bits;
    expect_close(run(), expected({}));
  }
}

TEST_P(QuantLayers, GradientsGoStraightThrough) {
  for (const Bits bits : {Bits{8, 8}, Bits{3, 8}, Bits{4, 4}, Bits{2, 2}, Bits{12, 16}}) {
    SCOPED_TRACE(testing::Message() << bits.forward << "/" << bits.backward << " bits");
    execution_->bits = bits;
    expect_close(run(), expected(bits));
  }
}

TEST_P(QuantLayers, GradientBitsOfZeroLeaveTheErrorAlone) {
  execution_->bits = {4, 0};
  execution_->stochastic = true;
  expect_close(run(), expected({4, 0}));
}

TEST_P(QuantLayers, ErrorIsRoundedWithTheNoiseOfSeedStepAndLayer) {
  execution_->bits = {4, 5};
  execution_->stochastic = true;
  const Gradients result = run();
  expect_close(result, expected({4, 5}, Noise::drawn({42, 17, kId})));
  execution_->step = 18;
  EXPECT_FALSE(run().weight.equal(result.weight));
  execution_->step = 17;
  EXPECT_TRUE(same(run().weight, result.weight));
}

TEST_P(QuantLayers, BifurcationKeepsTheWeightsErrorUnquantised) {
  execution_->bits = {4, 3};
  execution_->bifurcate = true;
  const Gradients result = run();
  expect_close(result, expected({4, 3}, Noise::none(), true));
  EXPECT_FALSE(close_to(result.weight, expected({4, 3}).weight, kTolerance));
}

TEST_P(QuantLayers, BackwardUsesTheBitsOfTheCall) {
  execution_->bits = {4, 5};
  execution_->stochastic = true;
  const Gradients undisturbed = run();
  execution_->step += 1;  // another step, and back: a further call in the same one would draw anew
  run();
  execution_->step -= 1;
  const Gradients result = run([&] {
    execution_->bits = {2, 2};
    execution_->step += 1;
    execution_->seed += 1;
    execution_->bifurcate = true;
    execution_->stochastic = false;
  });
  EXPECT_TRUE(same(result.x, undisturbed.x));
  EXPECT_TRUE(same(result.weight, undisturbed.weight));
  EXPECT_TRUE(same(result.bias, undisturbed.bias));
}

TEST_P(QuantLayers, InputThatNeedsNoGradientGetsNone) {
  for (const Bits bits : {Bits{0, 0}, Bits{4, 8}}) {
    execution_->bits = bits;
    layer_->zero_grad();
    const torch::Tensor y = call(x_);
    y.backward(error_of(y));
    EXPECT_FALSE(x_.grad().defined());
    EXPECT_TRUE(close_to(weight().grad(), expected(bits).weight, kTolerance));
  }
}

TEST_P(QuantLayers, RunningRangeIsAMovingMean) {
  execution_->bits = {8, 8};
  float min = 0, range = 0;
  for (int i = 1; i <= 4; ++i) {
    const torch::Tensor x = x_ * i - i;
    const float low = x.min().item<float>(), high = x.max().item<float>();
    min = 0.9f * min + 0.1f * low;
    range = 0.9f * range + 0.1f * (high - low);
    call(x);
    EXPECT_NEAR(buffer("activation_min"), min, 1e-5);  // a few roundings of numbers below 8
    EXPECT_NEAR(buffer("activation_range"), range, 1e-5);
  }
}

TEST_P(QuantLayers, EvaluationUsesTheRunningRangeAndLeavesIt) {
  execution_->bits = {5, 8};
  for (int i = 0; i < 3; ++i) call(x_);
  const Range running{layer_->named_buffers()["activation_min"].clone(),
                      layer_->named_buffers()["activation_range"].clone()};
  layer_->eval();
  const torch::NoGradGuard no_grad;
  const torch::Tensor y = call(x_ * 2);
  const torch::Tensor x = decode(encode(x_ * 2, running, 5));
  const torch::Tensor b = through(bias(), RangeGroup::kTensor, GetParam().quantises_bias ? 5 : 0);
  EXPECT_TRUE(close_to(y, GetParam().product(x, through(weight(), RangeGroup::kRow, 5), b), kTolerance));
  EXPECT_TRUE(same(layer_->named_buffers()["activation_min"], running.min));
  EXPECT_TRUE(same(layer_->named_buffers()["activation_range"], running.range));
}

TEST_P(QuantLayers, ACallInFullPrecisionLeavesTheRunningRange) {
  execution_->bits = {0, 0};
  call(x_);
  EXPECT_EQ(buffer("activation_min"), 0);
  EXPECT_EQ(buffer("activation_range"), 0);
}

TEST_P(QuantLayers, NotFiniteInputGivesNoFiniteOutput) {
  execution_->bits = {8, 8};
  torch::Tensor x = x_.clone();
  x.view({-1})[5] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(call(x).isnan().all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Kinds, QuantLayers, testing::ValuesIn(kKinds),
                         [](const testing::TestParamInfo<Kind>& tested) { return tested.param.name; });

TEST(QuantLayer, UsedBeforeItIsAttachedIsABrokenInvariant) {
  QuantLinear layer(QuantLinearOptions{3, 2});
  EXPECT_THROW(layer(torch::zeros({1, 3})), std::logic_error);
}

TEST(QuantLayer, LayersWithoutABiasHaveNone) {
  const auto execution = execution_at({4, 4});
  QuantConv2d conv(QuantConv2dOptions{.in_channels = 2, .out_channels = 3});
  QuantLinear linear(QuantLinearOptions{.in_features = 4, .out_features = 3, .bias = false});
  for (const std::shared_ptr<torch::nn::Module>& module :
       std::vector<std::shared_ptr<torch::nn::Module>>{conv.ptr(), linear.ptr()}) {
    fill(*module);
    dynamic_cast<QuantLayer&>(*module).attach(execution, "layer", 0);
    EXPECT_EQ(module->parameters().size(), 1);
  }
  conv(normal({2, 2, 3, 3}, 1)).sum().backward();
  linear(normal({2, 4}, 1)).sum().backward();
  EXPECT_TRUE(conv->weight.grad().defined());
  EXPECT_TRUE(linear->weight.grad().defined());
}

}  // namespace
}  // namespace lowtide
