#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <map>

#include "lowtide/models/image_model.h"
#include "lowtide/nn/quant_conv2d.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/nn/quant_linear.h"
#include "lowtide/tasks/image_setup.h"
#include "tests/io/scratch.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

std::int64_t parameter_count(const torch::nn::Module& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

struct Published {
  std::string name;
  std::int64_t parameters;
};

// ResNets: torchvision's for ImageNet; those for CIFAR have the published 269,722 (20 layers) and 1,727,962
// (110) with plain shortcuts, 97,216 more for each further block of the three groups, and here the two
// projections with their normalisations, 16·32 + 32·64 + 2 (32 + 64) = 2,752. MobileNetV2: by table 2 of its
// paper, with the 1×1 shortcuts where channels change at stride 1.
const std::vector<Published> kPublished{
    {"cifar-resnet8", 269722 - 2 * 97216 + 2752},
    {"cifar-resnet20", 272474},
    {"cifar-resnet38", 269722 + 3 * 97216 + 2752},
    {"cifar-resnet74", 269722 + 9 * 97216 + 2752},
    {"cifar-resnet110", 1727962 + 2752},
    {"cifar-resnet152", 269722 + 22 * 97216 + 2752},
    {"cifar-mobilenet-v2", 2296922},
    {"resnet18", 11689512},
    {"resnet34", 21797672},
    {"resnet50", 25557032},
};

class ImageModels : public testing::TestWithParam<ImageModelInfo> {
 protected:
  // Quick, and still more than one position in the last group: the large networks divide by 32.
  std::int64_t small_size() const { return GetParam().input_size == 224 ? 64 : 32; }
  std::int64_t small_batch() const { return GetParam().input_size == 224 ? 2 : 3; }

  torch::Tensor images(std::int64_t channels = 3) const {
    return normal({small_batch(), channels, small_size(), small_size()}, 1);
  }

  std::shared_ptr<ImageModel> make(std::int64_t channels, std::int64_t classes,
                                   const std::shared_ptr<Execution>& execution) const {
    auto model = GetParam().make(channels, classes);
    initialise(*model, 1);
    attach_layers(*model, execution, LayerRules(model->default_rules()));
    return model;
  }
};

TEST_P(ImageModels, ParametersAsPublished) {
  const auto published = std::find_if(kPublished.begin(), kPublished.end(),
                                      [](const auto& p) { return p.name == GetParam().name; });
  ASSERT_NE(published, kPublished.end()) << "no count known for " << GetParam().name;
  EXPECT_EQ(parameter_count(*GetParam().make(3, GetParam().classes)), published->parameters);
}

TEST_P(ImageModels, OtherChannelsAndClasses) {
  const auto model = make(1, 7, execution_at({}));
  model->eval();
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(model->forward(images(1)).sizes(), (torch::IntArrayRef{small_batch(), 7}));
}

TEST_P(ImageModels, EveryParameterGetsAFiniteGradient) {
  const auto model = make(3, 10, execution_at({4, 8}, /*stochastic=*/true));
  const torch::Tensor logits = model->forward(images());
  EXPECT_EQ(logits.sizes(), (torch::IntArrayRef{small_batch(), 10}));
  torch::cross_entropy_loss(logits, torch::arange(small_batch())).backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    EXPECT_GT(item.value().grad().abs().max().item<float>(), 0) << item.key();
  }
}

TEST_P(ImageModels, FullPrecisionWhereThePapersHaveIt) {
  const auto model = make(3, 10, execution_at({4, 8}));
  const bool imagenet = GetParam().input_size == 224;
  int full = 0;
  for (const QuantLayer* layer : quant_layers(*model)) {
    const std::string& name = layer->layer_name();
    const bool expected = name == "fc" || (imagenet && (name == "conv1" || name.ends_with(".shortcut")));
    EXPECT_EQ(to_string(layer->rule()), expected ? "fp32" : "scheduled") << name;
    full += expected;
  }
  // The classifier; and the first convolution with the shortcuts of three groups (four with bottlenecks).
  EXPECT_EQ(full, !imagenet ? 1 : GetParam().name == "resnet50" ? 6 : 5);
}

TEST_P(ImageModels, InitialisationIsAMatterOfTheSeed) {
  const auto a = GetParam().make(3, 10), b = GetParam().make(3, 10), other = GetParam().make(3, 10);
  initialise(*a, 5);
  torch::manual_seed(123);  // libtorch's own generator plays no part
  initialise(*b, 5);
  initialise(*other, 6);
  const auto first = a->named_parameters(), second = b->named_parameters(), third = other->named_parameters();
  for (const auto& item : first) {
    EXPECT_TRUE(same(item.value(), second[item.key()])) << item.key();
    if (item.key().find("norm") != std::string::npos) continue;
    EXPECT_FALSE(item.value().equal(third[item.key()])) << item.key();
  }
}

TEST_P(ImageModels, InitialisationHasTheRightDeviation) {
  const auto model = GetParam().make(3, 10);
  initialise(*model, 5);
  for (const auto& item : model->named_modules()) {
    torch::Tensor weight;
    double deviation = 0, kurtosis = 0;  // fourth moment over the square of the variance
    if (const auto* conv = item.value()->as<QuantConv2dImpl>()) {
      const auto& o = conv->options;
      weight = conv->weight.detach();
      deviation = std::sqrt(2.0 / static_cast<double>(o.kernel * o.kernel * o.out_channels / o.groups));
      kurtosis = 3;
    } else if (const auto* linear = item.value()->as<QuantLinearImpl>()) {
      weight = linear->weight.detach();
      deviation = 1 / std::sqrt(3.0 * static_cast<double>(linear->options.in_features));
      kurtosis = 1.8;
    } else {
      continue;
    }
    // Five standard errors: a network has up to 150 layers, and four are exceeded once in 16,000.
    const auto n = static_cast<double>(weight.numel());
    const double variance = weight.to(torch::kDouble).square().mean().item<double>();
    EXPECT_NEAR(weight.to(torch::kDouble).mean().item<double>() / deviation, 0, 5 / std::sqrt(n))
        << item.key();
    EXPECT_NEAR(variance / (deviation * deviation), 1, 5 * std::sqrt((kurtosis - 1) / n)) << item.key();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ImageModels, testing::ValuesIn(image_models()),
                         [](const testing::TestParamInfo<ImageModelInfo>& tested) {
                           std::string name = tested.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ImageModel, EveryParameterHasItsOwnRandomNumbers) {
  const auto model = image_model("cifar-resnet20").make(3, 10);
  initialise(*model, 1);
  const auto parameters = model->named_parameters();
  EXPECT_FALSE(parameters["group1.0.conv1.weight"].equal(parameters["group1.0.conv2.weight"]));
  EXPECT_TRUE(same(parameters["norm1.weight"], torch::ones({16})));
  EXPECT_TRUE(same(parameters["norm1.bias"], torch::zeros({16})));
}

// Multiply-accumulates of one image by torchvision's tables (convolutions and classifier).
TEST(ImageModel, MacsAsPublished) {
  const std::map<std::string, double> published{{"resnet18", 1814.1e6}, {"resnet50", 4089.2e6}};
  for (const auto& [name, macs] : published) {
    const auto execution = execution_at({});
    const auto model = image_model(name).make(3, 1000);
    attach_layers(*model, execution, {});
    double sum = 0;
    for (const Ledger::Layer& layer : layers_of(*model, *execution, {3, 224, 224, 1000}))
      sum += static_cast<double>(layer.macs);
    EXPECT_NEAR(sum, macs, 0.001 * macs) << name;
  }
}

TEST(ImageModel, AnUnknownNameIsToldThoseThereAre) {
  const std::string message = user_error([] { image_model("resnet19"); });
  EXPECT_TRUE(contains(message, "unknown model 'resnet19'"));
  for (const ImageModelInfo& info : image_models()) EXPECT_TRUE(contains(message, info.name));
}

TEST(ImageModel, ANameIsTakenOnce) {
  const ImageModelInfo another{"resnet18", 32, 10, image_model("cifar-resnet8").make};
  EXPECT_EQ(user_error([&] { add_image_model(another); }), "there is a model 'resnet18' already");
  EXPECT_EQ(image_model("resnet18").input_size, 224);
}

}  // namespace
}  // namespace lowtide
