// 1×1 convolutions with a stride, of which the integer engine keeps only what they read, against the reference.
#include <gtest/gtest.h>

#include "lowtide/nn/quant_conv2d.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

// Both read the same input; the first sums its gradient.
struct Fork : torch::nn::Module {
  Fork(std::int64_t stride, std::int64_t shortcut_stride)
      : conv(register_module(
            "conv",
            QuantConv2d(QuantConv2dOptions{
                .in_channels = 18, .out_channels = 12, .kernel = 3, .stride = stride, .padding = 1}))),
        shortcut(register_module(
            "shortcut", QuantConv2d(QuantConv2dOptions{
                            .in_channels = 18, .out_channels = 7, .kernel = 1, .stride = shortcut_stride}))) {
    const torch::NoGradGuard no_grad;
    conv->weight.copy_(normal(conv->weight.sizes(), 1));
    shortcut->weight.copy_(normal(shortcut->weight.sizes(), 2));
  }

  QuantConv2d conv, shortcut;
};

struct Result {
  torch::Tensor conv, shortcut, input_gradient, conv_gradient, shortcut_gradient;
};

enum class Readers { kShortcutAlone, kBoth };

Result run(const std::string& engine, Bits bits, Readers readers, std::int64_t stride,
           std::int64_t shortcut_stride) {
  const auto fork = std::make_shared<Fork>(stride, shortcut_stride);
  const auto execution = execution_at(bits);
  execution->engine = make_engine(engine);
  attach_layers(*fork, execution, LayerRules(std::vector<std::string>{}));
  torch::Tensor x = normal({3, 18, 7, 10}, 3).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_();
  Result result;
  torch::Tensor loss = torch::zeros({});
  const auto weigh = [&](const torch::Tensor& y, std::uint64_t seed) {
    loss = loss + (y * normal(y.sizes(), seed)).sum();
    return y.detach();
  };
  Activation other = x * 1;  // no leaf, as in a network
  if (readers == Readers::kBoth) {
    auto [y, rest] = fork->conv->branch(other);
    result.conv = weigh(y, 4);
    other = rest;
  }
  result.shortcut = weigh(fork->shortcut(other), 5);
  loss.backward();
  result.input_gradient = x.grad();
  result.conv_gradient = fork->conv->weight.grad();
  result.shortcut_gradient = fork->shortcut->weight.grad();
  return result;
}

void expect_close(const Result& actual, const Result& expected) {
  constexpr double kTolerance = 2e-6;  // sums of some hundred floats
  EXPECT_TRUE(close_to(actual.shortcut, expected.shortcut, kTolerance));
  EXPECT_TRUE(close_to(actual.input_gradient, expected.input_gradient, kTolerance));
  EXPECT_TRUE(close_to(actual.shortcut_gradient, expected.shortcut_gradient, kTolerance));
  if (!expected.conv.defined()) return;
  EXPECT_TRUE(close_to(actual.conv, expected.conv, kTolerance));
  EXPECT_TRUE(close_to(actual.conv_gradient, expected.conv_gradient, kTolerance));
}

// Codes of 8 bits; a float error, which the integer engine leaves to the reference; wide codes; floats.
constexpr Bits kAllBits[] = {{8, 8}, {3, 5}, {8, 0}, {12, 8}, {0, 0}};

TEST(StridedInput, AloneItIsTheReferences) {
  for (const Bits bits : kAllBits) {
    for (const std::int64_t stride : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << bits.forward << "/" << bits.backward << " bits, stride " << stride);
      expect_close(run("integer", bits, Readers::kShortcutAlone, 1, stride),
                   run("simulated", bits, Readers::kShortcutAlone, 1, stride));
    }
  }
}

TEST(StridedInput, ItsGradientIsSummedWithAnothers) {
  for (const Bits bits : kAllBits) {
    for (const auto& [stride, shortcut_stride] : {std::pair{2, 2}, {3, 3}, {1, 2}, {2, 3}, {1, 1}}) {
      SCOPED_TRACE(testing::Message() << bits.forward << "/" << bits.backward << " bits, strides " << stride
                                      << " and " << shortcut_stride);
      expect_close(run("integer", bits, Readers::kBoth, stride, shortcut_stride),
                   run("simulated", bits, Readers::kBoth, stride, shortcut_stride));
    }
  }
}

}  // namespace
}  // namespace lowtide
