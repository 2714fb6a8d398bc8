#include "lowtide/export/published_weights.h"

#include <fmt/format.h>

#include <functional>
#include <map>

#include "lowtide/base/error.h"
#include "lowtide/models/bert_weights.h"
#include "lowtide/models/torchvision_names.h"

namespace lowtide {
namespace {

using Rename = std::function<std::string(const std::string&)>;

// Hugging Face's BertForSequenceClassification.
std::string bert_name(const std::string& name) {
  const std::string published = published_name(name);
  return published.starts_with("classifier.") ? published : "bert." + published;
}

// torchvision's RetinaNet, with a pyramid that takes its sixth map from the trunk.
std::string retinanet_name(const std::string& name) {
  static const std::map<std::string, std::string> kModules{
      {"pyramid.lateral3", "backbone.fpn.inner_blocks.0.0"},
      {"pyramid.lateral4", "backbone.fpn.inner_blocks.1.0"},
      {"pyramid.lateral5", "backbone.fpn.inner_blocks.2.0"},
      {"pyramid.output3", "backbone.fpn.layer_blocks.0.0"},
      {"pyramid.output4", "backbone.fpn.layer_blocks.1.0"},
      {"pyramid.output5", "backbone.fpn.layer_blocks.2.0"},
      {"pyramid.output6", "backbone.fpn.extra_blocks.p6"},
      {"pyramid.output7", "backbone.fpn.extra_blocks.p7"},
      {"class_head.conv1", "head.classification_head.conv.0.0"},
      {"class_head.conv2", "head.classification_head.conv.1.0"},
      {"class_head.conv3", "head.classification_head.conv.2.0"},
      {"class_head.conv4", "head.classification_head.conv.3.0"},
      {"class_head.output", "head.classification_head.cls_logits"},
      {"box_head.conv1", "head.regression_head.conv.0.0"},
      {"box_head.conv2", "head.regression_head.conv.1.0"},
      {"box_head.conv3", "head.regression_head.conv.2.0"},
      {"box_head.conv4", "head.regression_head.conv.3.0"},
      {"box_head.output", "head.regression_head.bbox_reg"}};
  const std::size_t leaf = name.rfind('.');
  const auto found = kModules.find(name.substr(0, leaf));
  return found == kModules.end() ? "backbone.body." + torchvision_name(name)
                                 : found->second + name.substr(leaf);
}

Rename renaming_of(const std::string& model) {
  if (model == "bert") return bert_name;
  if (model.starts_with("retinanet")) return retinanet_name;
  if (model.starts_with("resnet")) return torchvision_name;
  throw UserError(
      fmt::format("{}: neither torchvision nor transformers has such a network; a checkpoint is a "
                  "safetensors file itself",
                  model));
}

bool is_running_range(const std::string& name) {
  return name.ends_with("activation_min") || name.ends_with("activation_range");
}

}  // namespace

std::vector<TensorView> published_weights(const SafetensorsFile& checkpoint, const std::string& model) {
  constexpr std::string_view kPrefix = "model.";
  const Rename rename = renaming_of(model);
  std::vector<TensorView> weights;
  for (const TensorView& tensor : checkpoint.tensors()) {
    if (!tensor.name.starts_with(kPrefix) || is_running_range(tensor.name)) continue;
    weights.push_back(tensor);
    weights.back().name = rename(tensor.name.substr(kPrefix.size()));
  }
  return weights;
}

}  // namespace lowtide
