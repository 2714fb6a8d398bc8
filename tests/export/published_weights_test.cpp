// Names of weights against those of torchvision's RetinaNet on resnet_fpn_backbone("resnet18", returned_layers=[2, 3, 4],
// extra_blocks=LastLevelP6P7(512, 256)) and of transformers' BertForSequenceClassification, as their state_dict() has them.
#include "lowtide/export/published_weights.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lowtide/models/bert.h"
#include "lowtide/models/retinanet.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

using Names = std::vector<std::string>;

// A module's parameters; of a normalisation its statistics too.
void add_module(Names& names, const std::string& module, const Names& parts = {"weight", "bias"}) {
  for (const std::string& part : parts) names.push_back(fmt::format("{}.{}", module, part));
}

void add_norm(Names& names, const std::string& module) {
  add_module(names, module, {"weight", "bias", "running_mean", "running_var"});
}

Names names_of_torchvision() {
  Names names;
  const std::string body = "backbone.body", fpn = "backbone.fpn";
  add_module(names, body + ".conv1", {"weight"});
  add_norm(names, body + ".bn1");
  for (int layer = 1; layer <= 4; ++layer) {
    for (int block = 0; block < 2; ++block) {
      const std::string here = fmt::format("{}.layer{}.{}", body, layer, block);
      for (int i = 1; i <= 2; ++i) {
        add_module(names, fmt::format("{}.conv{}", here, i), {"weight"});
        add_norm(names, fmt::format("{}.bn{}", here, i));
      }
      if (layer == 1 || block == 1) continue;
      add_module(names, here + ".downsample.0", {"weight"});
      add_norm(names, here + ".downsample.1");
    }
  }
  for (int i = 0; i < 3; ++i) {
    add_module(names, fmt::format("{}.inner_blocks.{}.0", fpn, i));
    add_module(names, fmt::format("{}.layer_blocks.{}.0", fpn, i));
  }
  for (const char* block : {"p6", "p7"}) add_module(names, fmt::format("{}.extra_blocks.{}", fpn, block));
  for (const auto& [head, last] :
       {std::pair{"classification_head", "cls_logits"}, {"regression_head", "bbox_reg"}}) {
    for (int i = 0; i < 4; ++i) add_module(names, fmt::format("head.{}.conv.{}.0", head, i));
    add_module(names, fmt::format("head.{}.{}", head, last));
  }
  return names;
}

Names names_of_transformers(int layers) {
  Names names;
  for (const char* table : {"word_embeddings", "position_embeddings", "token_type_embeddings"})
    add_module(names, fmt::format("bert.embeddings.{}", table), {"weight"});
  add_module(names, "bert.embeddings.LayerNorm");
  for (int i = 0; i < layers; ++i) {
    for (const char* module :
         {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
          "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"})
      add_module(names, fmt::format("bert.encoder.layer.{}.{}", i, module));
  }
  add_module(names, "bert.pooler.dense");
  add_module(names, "classifier");
  return names;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Of a checkpoint with all that the network has: these names, each on a tensor of its own, and what some of them were before.
void expect_names(const torch::nn::Module& model, const std::string& name, const Names& expected,
                  const Pairs& published_and_ours) {
  const ScratchFolder folder;
  std::vector<TensorView> views;
  const auto add = [&](const std::string& key, const at::Tensor& tensor) {
    const at::Tensor whole = tensor.detach();
    views.push_back({"model." + key,
                     DType::kF32,
                     whole.sizes().vec(),
                     {static_cast<const std::byte*>(whole.data_ptr()), whole.nbytes()}});
  };
  for (const auto& item : model.named_parameters()) add(item.key(), item.value());
  for (const auto& item : model.named_buffers()) add(item.key(), item.value());
  write_safetensors(folder / "c", views, {});
  const SafetensorsFile checkpoint(folder / "c");
  std::map<std::string, const std::byte*> places;
  Names names;
  for (const TensorView& view : published_weights(checkpoint, name)) {
    names.push_back(view.name);
    places[view.name] = view.data.data();
  }
  EXPECT_THAT(names, testing::UnorderedElementsAreArray(expected));
  for (const auto& [published, ours] : published_and_ours)
    EXPECT_EQ(places[published], checkpoint.at("model." + ours).data.data()) << published;
}

TEST(PublishedWeights, RetinaNetHasTheNamesOfTorchvision) {
  const RetinaNet model(18, 4);
  expect_names(
      model, "retinanet18", names_of_torchvision(),
      {{"backbone.body.layer3.0.downsample.1.running_var", "layer3.0.shortcut_norm.running_variance"},
       {"backbone.fpn.inner_blocks.0.0.weight", "pyramid.lateral3.weight"},
       {"backbone.fpn.layer_blocks.2.0.bias", "pyramid.output5.bias"},
       {"backbone.fpn.extra_blocks.p7.weight", "pyramid.output7.weight"},
       {"head.classification_head.conv.0.0.weight", "class_head.conv1.weight"},
       {"head.regression_head.conv.3.0.bias", "box_head.conv4.bias"},
       {"head.regression_head.bbox_reg.weight", "box_head.output.weight"}});
}

TEST(PublishedWeights, BertHasTheNamesOfTransformers) {
  BertConfig config;
  config.vocabulary = 11;
  config.hidden = 12;
  config.layers = 2;
  config.heads = 3;
  config.feed_forward = 20;
  const BertClassifier model(config, 3);
  expect_names(model, "bert", names_of_transformers(2),
               {{"bert.embeddings.token_type_embeddings.weight", "type_embedding.weight"},
                {"bert.encoder.layer.0.attention.self.key.weight", "layer0.attention.key.weight"},
                {"bert.encoder.layer.1.attention.output.LayerNorm.bias", "layer1.attention_norm.bias"},
                {"bert.encoder.layer.1.intermediate.dense.weight", "layer1.expand.weight"},
                {"bert.encoder.layer.1.output.dense.weight", "layer1.contract.weight"},
                {"bert.encoder.layer.0.output.LayerNorm.weight", "layer0.output_norm.weight"}});
}

}  // namespace
}  // namespace lowtide
