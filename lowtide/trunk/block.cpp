#include "lowtide/trunk/block.h"

#include <string>

namespace lowtide {
namespace {

QuantConv2dOptions conv1x1(std::int64_t in, std::int64_t out, std::int64_t stride = 1) {
  return {.in_channels = in, .out_channels = out, .kernel = 1, .stride = stride};
}

QuantConv2dOptions conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t groups = 1) {
  return {
      .in_channels = in, .out_channels = out, .kernel = 3, .stride = stride, .padding = 1, .groups = groups};
}

void set_shortcut(ConvBlockOptions& block, std::int64_t in, std::int64_t out, std::int64_t stride) {
  block.adds_input = stride == 1 && in == out;
  if (!block.adds_input) block.projection = conv1x1(in, out, stride);
}

}  // namespace

ConvBlock register_block(torch::nn::Module& owner, const ConvBlockOptions& options, int first) {
  ConvBlock block;
  block.adds_input = options.adds_input;
  const auto conv = [&](const std::string& name, const QuantConv2dOptions& of) {
    return owner.register_module(name, QuantConv2d(of));
  };
  const auto norm = [&](const std::string& name, const QuantConv2dOptions& of) {
    return owner.register_module(
        name, BatchNorm(BatchNormOptions{.channels = of.out_channels, .frozen = options.frozen_norm}));
  };
  const auto number = [&](std::size_t i) { return std::to_string(first + static_cast<int>(i)); };
  const std::size_t count = options.convs.size();
  for (std::size_t i = 0; i < count; ++i) {
    block.stages.push_back({.conv = conv("conv" + number(i), options.convs[i])});
    block.stages.back().relu = i + 1 < count || options.relu;
  }
  for (std::size_t i = 0; i < count; ++i) block.stages[i].norm = norm("norm" + number(i), options.convs[i]);
  if (options.projection) {
    block.projection = ConvStage{.conv = conv("shortcut", *options.projection), .relu = false};
    block.projection->norm = norm("shortcut_norm", *options.projection);
  }
  return block;
}

ConvBlock push_block(torch::nn::ModuleListImpl& list, const ConvBlockOptions& options) {
  const auto owner = std::make_shared<torch::nn::Module>("ConvBlock");
  list.push_back(owner);
  return register_block(*owner, options);
}

ConvBlockOptions basic_block(std::int64_t in, std::int64_t out, std::int64_t stride) {
  ConvBlockOptions block{.convs = {conv3x3(in, out, stride), conv3x3(out, out, 1)}};
  set_shortcut(block, in, out, stride);
  return block;
}

ConvBlockOptions bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride) {
  const std::int64_t out = kBottleneckExpansion * width;
  ConvBlockOptions block{.convs = {conv1x1(in, width), conv3x3(width, width, stride), conv1x1(width, out)}};
  set_shortcut(block, in, out, stride);
  return block;
}

ConvBlockOptions inverted_residual(std::int64_t in, std::int64_t out, std::int64_t expansion,
                                   std::int64_t stride) {
  const std::int64_t width = expansion * in;
  ConvBlockOptions block{
      .convs = {conv1x1(in, width), conv3x3(width, width, stride, width), conv1x1(width, out)},
      .relu = false};
  if (stride == 1) set_shortcut(block, in, out, stride);
  return block;
}

}  // namespace lowtide
