#include "lowtide/models/retinanet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/base/torch.h"
#include "lowtide/models/anchors.h"
#include "lowtide/models/image_model.h"
#include "lowtide/nn/pointwise.h"

namespace lowtide {
namespace {

QuantConv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1) {
  return QuantConv2d(QuantConv2dOptions{.in_channels = in,
                                        .out_channels = out,
                                        .kernel = kernel,
                                        .stride = stride,
                                        .padding = kernel / 2,
                                        .bias = true});
}

template <std::size_t... kIndex>
std::array<QuantConv2d, sizeof...(kIndex)> unset(std::index_sequence<kIndex...>) {
  return {((void)kIndex, QuantConv2d(nullptr))...};
}

at::Tensor doubled(const at::Tensor& x) {
  return torch::upsample_nearest2d(x, {2 * x.size(2), 2 * x.size(3)});
}

}  // namespace

FeaturePyramidImpl::FeaturePyramidImpl(const ResNetTrunk& trunk, std::int64_t width)
    : lateral_(unset(std::make_index_sequence<kLateral>())),
      output_(unset(std::make_index_sequence<kLevels>())) {
  const auto name = [](const char* kind, std::size_t i) {
    return fmt::format("{}{}", kind, kFirstLevel + static_cast<int>(i));
  };
  for (std::size_t i = 0; i < kLateral; ++i) {
    const std::int64_t in = trunk.width(static_cast<int>(i) + 1);
    lateral_[i] = register_module(name("lateral", i), convolution(in, width, 1));
  }
  for (std::size_t i = 0; i < kLevels; ++i) {
    const std::int64_t in = i == kLateral ? trunk.width(ResNetTrunk::kGroups - 1) : width;
    output_[i] = register_module(name("output", i), convolution(in, width, 3, i < kLateral ? 1 : 2));
  }
}

std::array<Activation, FeaturePyramidImpl::kLevels> FeaturePyramidImpl::forward(
    const std::array<Activation, ResNetTrunk::kGroups>& groups) {
  std::array<Activation, kLevels> levels;
  at::Tensor coarser;
  for (std::size_t i = kLateral; i-- > 0;) {
    at::Tensor merged = lateral_[i](groups[i + 1]);
    if (coarser.defined()) merged = merged + doubled(coarser);
    levels[i] = output_[i](merged);
    coarser = merged;
  }
  levels[kLateral] = output_[kLateral](groups.back());
  levels[kLateral + 1] = output_[kLateral + 1](torch::relu(levels[kLateral].value));
  return levels;
}

DetectionHeadImpl::DetectionHeadImpl(std::int64_t width, std::int64_t values)
    : convolutions_(unset(std::make_index_sequence<kConvolutions>())), values_(values) {
  for (std::size_t i = 0; i < kConvolutions; ++i) {
    convolutions_[i] = register_module(fmt::format("conv{}", i + 1), convolution(width, width, 3));
  }
  output = register_module("output", convolution(width, kAnchorsAPosition * values, 3));
}

at::Tensor DetectionHeadImpl::forward(const Activation& level) {
  Activation x = level;
  for (auto& conv : convolutions_) x = torch::relu(conv(x));
  const at::Tensor y = output(x);
  return y.permute({0, 2, 3, 1}).reshape({y.size(0), -1, values_});
}

RetinaNet::RetinaNet(int layers, std::int64_t classes, bool frozen_norm)
    : trunk_(*this, layers, 3, frozen_norm),
      pyramid_(register_module("pyramid", FeaturePyramid(trunk_, kWidth))),
      class_head_(register_module("class_head", DetectionHead(kWidth, classes))),
      box_head_(register_module("box_head", DetectionHead(kWidth, 4))) {}

DetectorOutput RetinaNet::forward(const at::Tensor& images) {
  std::vector<at::Tensor> logits, deltas;
  for (const Activation& level : pyramid_(trunk_.forward(images))) {
    logits.push_back(class_head_(level));
    deltas.push_back(box_head_(level));
  }
  return {lowtide::sigmoid(torch::cat(logits, 1)), torch::cat(deltas, 1)};
}

void RetinaNet::initialise(std::uint64_t seed) {
  constexpr double kPrior = 0.01;
  lowtide::initialise(*this, seed);
  const torch::NoGradGuard no_grad;
  class_head_->output->weight.zero_();
  class_head_->output->bias.fill_(-std::log((1 - kPrior) / kPrior));
  box_head_->output->weight.zero_();
}

const std::vector<DetectionModelInfo>& detection_models() {
  static const std::vector<DetectionModelInfo> models{
      {"retinanet18", 18}, {"retinanet34", 34}, {"retinanet50", 50}, {"retinanet101", 101}};
  return models;
}

const DetectionModelInfo& detection_model(const std::string& name) {
  std::vector<std::string_view> known;
  for (const DetectionModelInfo& model : detection_models()) {
    if (model.name == name) return model;
    known.push_back(model.name);
  }
  throw UserError(fmt::format("unknown detector '{}'{}; there are {}", name, did_you_mean(name, known),
                              fmt::join(known, ", ")));
}

}  // namespace lowtide
