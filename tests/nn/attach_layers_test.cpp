#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>

#include <map>

#include "lowtide/nn/quant_conv2d.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/nn/quant_linear.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

// Three layers, one of them in a module of its own.
struct SmallNet : torch::nn::Module {
  SmallNet() {
    conv1 = register_module("conv1", QuantConv2d(QuantConv2dOptions{
                                         .in_channels = 4, .out_channels = 6, .kernel = 3, .padding = 1}));
    inner = register_module("inner", torch::nn::Sequential());
    inner->push_back(
        "conv2",
        QuantConv2d(QuantConv2dOptions{
            .in_channels = 6, .out_channels = 12, .kernel = 3, .stride = 2, .padding = 1, .groups = 6}));
    fc = register_module("fc", QuantLinear(QuantLinearOptions{12, 5}));
    const torch::NoGradGuard no_grad;
    std::uint64_t seed = 1;
    for (auto& parameter : parameters()) parameter.copy_(normal(parameter.sizes(), seed++));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return fc(inner->forward<torch::Tensor>(Activation(conv1(x))).mean({2, 3}));
  }

  QuantConv2d conv1{nullptr};
  torch::nn::Sequential inner{nullptr};
  QuantLinear fc{nullptr};
};

std::map<std::string, torch::Tensor> outputs_of(SmallNet& net, Execution& execution, const torch::Tensor& x) {
  std::map<std::string, torch::Tensor> outputs;
  execution.listener = [&](const LayerEvent& event) {
    EXPECT_TRUE(outputs.emplace(event.layer, event.output.detach().clone()).second)
        << event.layer << " told twice";
  };
  net.forward(x);
  execution.listener = nullptr;
  return outputs;
}

torch::Tensor through(const torch::Tensor& x, RangeGroup group, int bits) {
  return bits == 0 ? x : decode(encode(x, measure_range(x, group), bits));
}

TEST(AttachLayers, GivesEveryLayerItsNameAndRule) {
  const auto net = std::make_shared<SmallNet>();
  attach_layers(*net, execution_at({4, 8}), LayerRules({"*=8", "inner.*=scheduled", "fc=fp32"}));
  const auto layers = quant_layers(*net);
  ASSERT_EQ(layers.size(), 3);
  EXPECT_EQ(layers[0]->layer_name(), "conv1");
  EXPECT_EQ(layers[1]->layer_name(), "inner.conv2");
  EXPECT_EQ(layers[2]->layer_name(), "fc");
  EXPECT_EQ(to_string(layers[0]->rule()), "8");
  EXPECT_EQ(to_string(layers[1]->rule()), "scheduled");
  EXPECT_EQ(to_string(layers[2]->rule()), "fp32");
}

TEST(AttachLayers, LayersRunAtTheBitsOfTheirRules) {
  SmallNet net;
  const auto execution = execution_at({3, 8});
  attach_layers(net, execution, LayerRules({"conv1=8", "fc=fp32"}));
  const torch::Tensor x = normal({3, 4, 8, 8}, 5);
  const auto outputs = outputs_of(net, *execution, x);

  const auto conv2 = net.inner->ptr(0)->as<QuantConv2dImpl>();
  const torch::Tensor y1 = torch::conv2d(through(x, RangeGroup::kTensor, 8),
                                         through(net.conv1->weight, RangeGroup::kRow, 8), {}, 1, 1);
  EXPECT_TRUE(close_to(outputs.at("conv1"), y1, 1e-5));
  // From the layer's own input on: a last bit that differs would move codes.
  const torch::Tensor y2 =
      torch::conv2d(through(outputs.at("conv1"), RangeGroup::kTensor, 3),
                    through(conv2->weight.detach(), RangeGroup::kRow, 3), {}, 2, 1, 1, 6);
  EXPECT_TRUE(close_to(outputs.at("inner.conv2"), y2, 1e-5));
  const torch::Tensor y3 =
      torch::linear(outputs.at("inner.conv2").mean({2, 3}), net.fc->weight, net.fc->bias);
  EXPECT_TRUE(close_to(outputs.at("fc"), y3, 1e-5));
}

TEST(AttachLayers, AStepInFullPrecisionIsSoInEveryLayer) {
  SmallNet net;
  const auto execution = execution_at({});
  const torch::Tensor x = normal({3, 4, 8, 8}, 5);
  attach_layers(net, execution, LayerRules());
  const torch::Tensor plain = net.forward(x);
  attach_layers(net, execution, LayerRules({"*=4"}));
  EXPECT_TRUE(same(net.forward(x), plain));
}

TEST(AttachLayers, GradientsOfAFixedLayerStayAsScheduled) {
  const torch::Tensor x = normal({3, 4, 8, 8}, 5), error = normal({3, 6, 8, 8}, 6);
  const auto gradient = [&](Bits bits, const std::vector<std::string>& rules) {
    SmallNet net;
    attach_layers(net, execution_at(bits), LayerRules(rules));
    net.conv1(x).backward(error);
    return net.conv1->weight.grad();
  };
  EXPECT_TRUE(same(gradient({3, 4}, {"conv1=8"}), gradient({8, 4}, {})));
  EXPECT_FALSE(gradient({3, 4}, {"conv1=8"}).equal(gradient({8, 8}, {})));
  EXPECT_TRUE(same(gradient({3, 4}, {"conv1=fp32"}), gradient({0, 0}, {})));
}

TEST(AttachLayers, EveryLayerHasNoiseOfItsOwn) {
  // Two layers alike in all but their place.
  torch::nn::Sequential twins(QuantLinear(QuantLinearOptions{8, 8}), QuantLinear(QuantLinearOptions{8, 8}));
  const auto execution = execution_at({8, 3}, /*stochastic=*/true);
  attach_layers(*twins, execution, {});
  const torch::Tensor weight = normal({8, 8}, 1), x = normal({4, 8}, 2), error = normal({4, 8}, 3);
  std::vector<torch::Tensor> gradients;
  for (std::size_t i = 0; i < 2; ++i) {
    auto* layer = twins->ptr(i)->as<QuantLinearImpl>();
    {
      const torch::NoGradGuard no_grad;
      layer->weight.copy_(weight);
    }
    layer->forward(x).backward(error);
    gradients.push_back(layer->weight.grad());
  }
  EXPECT_FALSE(gradients[0].equal(gradients[1]));
}

TEST(AttachLayers, TheListenerHearsEveryCallOnceWithItsMacs) {
  SmallNet net;
  const auto execution = execution_at({4, 8});
  attach_layers(net, execution, {});
  std::vector<std::pair<std::string, std::int64_t>> heard;
  execution->listener = [&](const LayerEvent& event) { heard.emplace_back(event.layer, event.macs); };
  // Items, output positions, channels in a group, channels out, kernel.
  const auto expected = [](std::int64_t items) {
    return std::vector<std::pair<std::string, std::int64_t>>{{"conv1", items * 9 * 7 * 4 * 6 * 9},
                                                             {"inner.conv2", items * 5 * 4 * 1 * 12 * 9},
                                                             {"fc", items * 12 * 5}};
  };
  net.forward(normal({3, 4, 9, 7}, 5)).sum().backward();
  EXPECT_EQ(heard, expected(3));
  heard.clear();
  net.forward(normal({1, 4, 9, 7}, 5));
  EXPECT_EQ(heard, expected(1));
  heard.clear();
  net.fc(normal({3, 10, 12}, 1));  // a sequence has a product a position
  EXPECT_EQ(heard, (decltype(heard){{"fc", 3 * 10 * 12 * 5}}));
}

}  // namespace
}  // namespace lowtide
