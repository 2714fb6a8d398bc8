#include "lowtide/models/retinanet.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <map>

#include "lowtide/io/safetensors.h"
#include "lowtide/models/anchors.h"
#include "lowtide/nn/quant_layer.h"
#include "lowtide/tasks/detection_loss.h"
#include "tests/io/scratch.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

constexpr std::int64_t kClasses = 3;

torch::Tensor images(std::int64_t height, std::int64_t width) {
  return normal({2, 3, height, width}, 1).contiguous(torch::MemoryFormat::ChannelsLast);
}

// One object in the first image, none in the second.
torch::Tensor objects() {
  torch::Tensor objects = torch::full({2, 1, 5}, -1.0f);
  objects[0][0] = torch::tensor({4.0f, 6.0f, 50.0f, 44.0f, 1.0f});
  return objects;
}

std::shared_ptr<RetinaNet> make(int layers, const std::shared_ptr<Execution>& execution) {
  auto model = std::make_shared<RetinaNet>(layers, kClasses);
  model->initialise(1);
  attach_layers(*model, execution, {});
  return model;
}

torch::Tensor loss_of(RetinaNet& model, const torch::Tensor& x) {
  const DetectorOutput output = model.forward(x);
  const DetectionLoss loss =
      detection_loss(output.probabilities, output.deltas, make_anchors(x.size(2), x.size(3)), objects());
  return loss.classification + loss.box;
}

// The last layers of the heads start at 0 and pass nothing on: what a few steps would make of them.
void wake_heads(RetinaNet& model) {
  const torch::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) {
    if (item.key().ends_with("output.weight")) item.value().copy_(0.01 * normal(item.value().sizes(), 7));
  }
}

class RetinaNets : public testing::TestWithParam<DetectionModelInfo> {};

TEST_P(RetinaNets, SaysSomethingOfEveryAnchor) {
  const auto model = make(GetParam().layers, execution_at({}));
  const torch::NoGradGuard no_grad;
  const DetectorOutput output = model->forward(images(64, 96));
  const std::int64_t anchors = make_anchors(64, 96).size(0);
  EXPECT_EQ(anchors, 9 * (8 * 12 + 4 * 6 + 2 * 3 + 1 * 2 + 1));
  EXPECT_EQ(output.probabilities.sizes(), (torch::IntArrayRef{2, anchors, kClasses}));
  EXPECT_EQ(output.deltas.sizes(), (torch::IntArrayRef{2, anchors, 4}));
  EXPECT_TRUE(close_to(output.probabilities, torch::full({2, anchors, kClasses}, 0.01f), 1e-6));
  EXPECT_TRUE(same(output.deltas, torch::zeros({2, anchors, 4})));
}

// torchvision's ResNets without classifier and normalisations' parameters; the pyramid: three 1×1 of the groups'
// widths, two 3×3 of 256 and one of the last group's width with stride, two more of 256; two heads of four.
TEST_P(RetinaNets, HasAsManyParametersAsPublished) {
  struct Trunk {
    std::int64_t parameters, normalised;
    std::array<std::int64_t, 3> widths;
  };
  const std::map<int, Trunk> trunks{{18, {11689512 - 513000, 4800, {128, 256, 512}}},
                                    {34, {21797672 - 513000, 8512, {128, 256, 512}}},
                                    {50, {25557032 - 2049000, 26560, {512, 1024, 2048}}},
                                    {101, {44549160 - 2049000, 52672, {512, 1024, 2048}}}};
  const Trunk& trunk = trunks.at(GetParam().layers);
  const auto conv = [](std::int64_t in, std::int64_t out, std::int64_t k) { return (in * k * k + 1) * out; };
  std::int64_t expected = trunk.parameters - 2 * trunk.normalised;
  for (const std::int64_t width : trunk.widths) expected += conv(width, 256, 1);
  expected += 4 * conv(256, 256, 3) + conv(trunk.widths.back(), 256, 3);
  expected += 8 * conv(256, 256, 3) + conv(256, 9 * kClasses, 3) + conv(256, 9 * 4, 3);
  std::int64_t count = 0;
  const auto model = std::make_shared<RetinaNet>(GetParam().layers, kClasses);
  for (const auto& parameter : model->parameters()) count += parameter.numel();
  EXPECT_EQ(count, expected);
}

INSTANTIATE_TEST_SUITE_P(Models, RetinaNets, testing::ValuesIn(detection_models()),
                         [](const auto& instance) { return instance.param.name; });

TEST(RetinaNet, EveryParameterGetsAFiniteGradient) {
  const auto model = make(18, execution_at({5, 8}, /*stochastic=*/true));
  wake_heads(*model);
  loss_of(*model, images(64, 64)).backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    EXPECT_GT(item.value().grad().abs().max().item<float>(), 0) << item.key();
  }
}

TEST(RetinaNet, NormalisationIsFrozenInTraining) {
  const auto model = make(18, execution_at({8, 8}));
  std::map<std::string, torch::Tensor> before;
  for (const auto& item : model->named_buffers()) before[item.key()] = item.value().clone();
  const torch::Tensor trained = loss_of(*model, images(64, 64));
  for (const auto& item : model->named_buffers()) {
    if (item.key().ends_with("activation_min")) continue;  // stays 0 behind ReLU
    const bool is_range = item.key().ends_with("activation_range");
    EXPECT_EQ(item.value().equal(before.at(item.key())), !is_range) << item.key();
  }
}

// Multiply-accumulates of the heads, by hand: 8 convolutions of 256 · 256 · 9 and the two last ones at every position.
TEST(RetinaNet, HeadsMultiplyAtEveryLevel) {
  const auto execution = execution_at({});
  const auto model = make(18, execution);
  std::map<std::string, std::int64_t> macs;
  execution->listener = [&](const LayerEvent& event) { macs[event.layer] += event.macs / 2; };
  const torch::NoGradGuard no_grad;
  model->forward(images(96, 128));
  constexpr std::int64_t kPositions = 192 + 48 + 12 + 4 + 1;
  for (const std::string head : {"class_head", "box_head"}) {
    for (const std::string conv : {".conv1", ".conv4"})
      EXPECT_EQ(macs.at(head + conv), kPositions * 256 * 256 * 9) << head << conv;
  }
  EXPECT_EQ(macs.at("class_head.output"), kPositions * 256 * 9 * kClasses * 9);
  EXPECT_EQ(macs.at("box_head.output"), kPositions * 256 * 9 * 4 * 9);
  EXPECT_EQ(macs.at("pyramid.output6"),
            2 * 2 * 512 * 256 * 9);  // C5 has 3 × 4 positions
}

TEST(RetinaNet, AStepDoesNotDependOnTheNumberOfThreads) {
  expect_independent_of_threads([] {
    const auto model = make(18, execution_at({5, 8}, /*stochastic=*/true));
    wake_heads(*model);
    loss_of(*model, images(96, 128)).backward();
    std::vector<torch::Tensor> gradients;
    for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad().flatten());
    return torch::cat(gradients);
  });
}

// As for the classifiers (integer_training_test.cpp): no further from the reference than the reference is from itself
// when its parameters are off by a rounding.
TEST(RetinaNet, EnginesAgreeToRounding) {
  const auto gradient = [](const std::string& engine, Bits bits, double perturbation) {
    const auto execution = execution_at(bits, /*stochastic=*/true);
    execution->engine = make_engine(engine);
    const auto model = make(18, execution);
    wake_heads(*model);
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : model->parameters())
        parameter.mul_(1 + perturbation * torch::randn_like(parameter));
    }
    loss_of(*model, images(64, 64)).backward();
    return model->named_parameters()["pyramid.lateral3.weight"].grad().clone();
  };
  const auto distance = [](const torch::Tensor& a, const torch::Tensor& b) {
    return ((a - b).norm() / b.norm()).item<double>();
  };
  const auto names = engine_names();
  if (std::find(names.begin(), names.end(), "integer") == names.end())
    GTEST_SKIP() << "no integer engine here";
  torch::manual_seed(1);
  for (const Bits bits : {Bits{0, 0}, Bits{8, 8}, Bits{5, 8}}) {
    const torch::Tensor reference = gradient("simulated", bits, 0);
    double spread = 0;
    for (int i = 0; i < 3; ++i)
      spread = std::max(spread, distance(gradient("simulated", bits, 1e-7), reference));
    EXPECT_LT(distance(gradient("integer", bits, 0), reference), std::max(2e-4, 1.5 * spread))
        << bits.forward;
  }
}

TEST(RetinaNet, AnUnknownNameIsToldThoseThereAre) {
  EXPECT_TRUE(contains(user_error([] { detection_model("retinanet19"); }), "unknown detector 'retinanet19'",
                       "retinanet18", "retinanet101"));
}

// A file as torchvision's weights make it, of the tensors that `change` leaves.
class Backbone : public testing::Test {
 protected:
  using Tensors = std::map<std::string, torch::Tensor>;

  std::filesystem::path write(const std::function<void(Tensors&)>& change = [](Tensors&) {}) {
    Tensors tensors;
    for (const auto& list : {source_->named_parameters(), source_->named_buffers()}) {
      for (const auto& item : list) {
        if (item.key().find("activation_") != std::string::npos) continue;
        tensors[name_of(item.key())] = item.value().detach().contiguous();
      }
    }
    tensors["fc.weight"] = torch::zeros({1000, 512});
    change(tensors);
    std::vector<TensorView> views;
    for (const auto& [name, tensor] : tensors) {
      views.push_back({name,
                       DType::kF32,
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
    }
    write_safetensors(folder_ / "resnet18.safetensors", views, {});
    return folder_ / "resnet18.safetensors";
  }

  static std::string name_of(const std::string& ours) {
    static const std::map<std::string, std::string> kNames{
        {"norm1.weight", "bn1.weight"},
        {"norm1.running_variance", "bn1.running_var"},
        {"layer1.1.norm2.running_mean", "layer1.1.bn2.running_mean"},
        {"layer2.0.shortcut.weight", "layer2.0.downsample.0.weight"},
        {"layer2.0.shortcut_norm.bias", "layer2.0.downsample.1.bias"}};
    if (const auto found = kNames.find(ours); found != kNames.end()) return found->second;
    std::string name = ours;
    const auto replace = [&name](const std::string& from, const std::string& to) {
      if (const auto at = name.find(from); at != name.npos) name.replace(at, from.size(), to);
    };
    replace("shortcut_norm", "downsample.1");
    replace("shortcut", "downsample.0");
    replace("norm", "bn");
    replace("running_variance", "running_var");
    return name;
  }

  Backbone() {
    source_->initialise(5);
    for (auto& buffer : source_->buffers()) buffer.uniform_(0.5, 1.5);
  }

  const ScratchFolder folder_;
  const std::shared_ptr<RetinaNet> source_ = std::make_shared<RetinaNet>(18, kClasses);
};

TEST_F(Backbone, EveryTensorOfTheTrunkIsRead) {
  const auto model = std::make_shared<RetinaNet>(18, kClasses);
  model->initialise(1);
  model->load_backbone(write());
  const auto from = source_->named_parameters(), to = model->named_parameters();
  const auto from_buffers = source_->named_buffers(), to_buffers = model->named_buffers();
  for (const std::string name :
       {"conv1.weight", "layer1.0.conv1.weight", "layer2.0.shortcut.weight", "layer4.1.conv2.weight"})
    EXPECT_TRUE(same(to[name], from[name])) << name;
  for (const std::string name : {"norm1.weight", "norm1.running_variance", "layer1.1.norm2.running_mean",
                                 "layer2.0.shortcut_norm.bias", "layer4.1.norm2.running_variance"})
    EXPECT_TRUE(same(to_buffers[name], from_buffers[name])) << name;
  EXPECT_FALSE(to["pyramid.lateral3.weight"].equal(from["pyramid.lateral3.weight"]));
}

TEST_F(Backbone, WhatIsWrongWithAFileIsToldInALine) {
  const auto model = std::make_shared<RetinaNet>(18, kClasses);
  const auto told = [&](const std::filesystem::path& file) {
    return user_error([&] { model->load_backbone(file); });
  };
  EXPECT_TRUE(contains(told(write([](Tensors& t) { t.erase("layer2.0.downsample.0.weight"); })),
                       "resnet18.safetensors", "no tensor layer2.0.downsample.0.weight", "[128, 64, 1, 1]"));
  EXPECT_TRUE(contains(told(write([](Tensors& t) { t["bn1.weight"] = torch::ones({32}); })),
                       "bn1.weight is F32 [32]", "[64]"));
  EXPECT_TRUE(contains(told(folder_ / "nowhere.safetensors"), "nowhere.safetensors"));
}

}  // namespace
}  // namespace lowtide
