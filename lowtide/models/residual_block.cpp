#include "lowtide/models/residual_block.h"

#include <torch/torch.h>

namespace lowtide {
namespace {

QuantConv2dOptions conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride) {
  return {.in_channels = in, .out_channels = out, .kernel = 3, .stride = stride, .padding = 1};
}

QuantConv2dOptions conv1x1(std::int64_t in, std::int64_t out, std::int64_t stride = 1) {
  return {.in_channels = in, .out_channels = out, .kernel = 1, .stride = stride};
}

bool needs_projection(std::int64_t in, std::int64_t out, std::int64_t stride) {
  return stride != 1 || in != out;
}

}  // namespace

BasicBlockImpl::BasicBlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride, bool frozen_norm)
    : conv1_(register_module("conv1", QuantConv2d(conv3x3(in, out, stride)))),
      conv2_(register_module("conv2", QuantConv2d(conv3x3(out, out, 1)))),
      norm1_(register_module("norm1", NormAct(NormActOptions{.channels = out, .frozen = frozen_norm}))),
      norm2_(register_module("norm2", NormAct(NormActOptions{.channels = out, .frozen = frozen_norm}))) {
  if (!needs_projection(in, out, stride)) return;
  shortcut_ = register_module("shortcut", QuantConv2d(conv1x1(in, out, stride)));
  shortcut_norm_ = register_module(
      "shortcut_norm", NormAct(NormActOptions{.channels = out, .relu = false, .frozen = frozen_norm}));
}

Activation BasicBlockImpl::forward(const Activation& x) {
  auto [y, residual] = conv1_->branch(x);
  if (!shortcut_.is_empty()) residual = shortcut_norm_(shortcut_(residual));
  return norm2_(conv2_(norm1_->deferred(y)), residual);
}

BottleneckImpl::BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride, bool frozen_norm)
    : conv1_(register_module("conv1", QuantConv2d(conv1x1(in, width)))),
      conv2_(register_module("conv2", QuantConv2d(conv3x3(width, width, stride)))),
      conv3_(register_module("conv3", QuantConv2d(conv1x1(width, kExpansion * width)))),
      norm1_(register_module("norm1", NormAct(NormActOptions{.channels = width, .frozen = frozen_norm}))),
      norm2_(register_module("norm2", NormAct(NormActOptions{.channels = width, .frozen = frozen_norm}))),
      norm3_(register_module(
          "norm3", NormAct(NormActOptions{.channels = kExpansion * width, .frozen = frozen_norm}))) {
  if (!needs_projection(in, kExpansion * width, stride)) return;
  shortcut_ = register_module("shortcut", QuantConv2d(conv1x1(in, kExpansion * width, stride)));
  shortcut_norm_ = register_module(
      "shortcut_norm",
      NormAct(NormActOptions{.channels = kExpansion * width, .relu = false, .frozen = frozen_norm}));
}

Activation BottleneckImpl::forward(const Activation& x) {
  auto [y, residual] = conv1_->branch(x);
  if (!shortcut_.is_empty()) residual = shortcut_norm_(shortcut_(residual));
  return norm3_(conv3_(norm2_->deferred(conv2_(norm1_->deferred(y)))), residual);
}

}  // namespace lowtide
