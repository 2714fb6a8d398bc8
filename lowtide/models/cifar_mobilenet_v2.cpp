#include "lowtide/models/cifar_mobilenet_v2.h"

#include <torch/torch.h>

#include "lowtide/nn/pixel_mean.h"
#include "lowtide/nn/quant_linear.h"

namespace lowtide {
namespace {

QuantConv2dOptions pointwise(std::int64_t in, std::int64_t out) {
  return {.in_channels = in, .out_channels = out};
}

QuantConv2dOptions depthwise(std::int64_t channels, std::int64_t stride) {
  return {.in_channels = channels,
          .out_channels = channels,
          .kernel = 3,
          .stride = stride,
          .padding = 1,
          .groups = channels};
}

}  // namespace

InvertedResidualImpl::InvertedResidualImpl(std::int64_t in, std::int64_t out, std::int64_t expansion,
                                           std::int64_t stride)
    : adds_input_(stride == 1),
      conv1_(register_module("conv1", QuantConv2d(pointwise(in, expansion * in)))),
      conv2_(register_module("conv2", QuantConv2d(depthwise(expansion * in, stride)))),
      conv3_(register_module("conv3", QuantConv2d(pointwise(expansion * in, out)))),
      norm1_(register_module("norm1", NormAct(NormActOptions{expansion * in}))),
      norm2_(register_module("norm2", NormAct(NormActOptions{expansion * in}))),
      norm3_(register_module("norm3", NormAct(NormActOptions{.channels = out, .relu = false}))) {
  if (!adds_input_ || in == out) return;
  shortcut_ = register_module("shortcut", QuantConv2d(pointwise(in, out)));
  shortcut_norm_ = register_module("shortcut_norm", NormAct(NormActOptions{.channels = out, .relu = false}));
}

Activation InvertedResidualImpl::forward(const Activation& x) {
  auto [expanded, residual] = conv1_->branch(x);
  const Activation y = conv3_(norm2_->deferred(conv2_(norm1_->deferred(expanded))));
  if (!adds_input_) return norm3_(y);
  if (!shortcut_.is_empty()) residual = shortcut_norm_(shortcut_(residual));
  return norm3_(y, residual);
}

namespace {

class CifarMobileNetV2 final : public ImageModel {
 public:
  CifarMobileNetV2(std::int64_t channels, std::int64_t classes)
      : conv1_(register_module("conv1",
                               QuantConv2d(QuantConv2dOptions{
                                   .in_channels = channels, .out_channels = 32, .kernel = 3, .padding = 1}))),
        norm1_(register_module("norm1", NormAct(NormActOptions{32}))) {
    struct Stage {
      std::int64_t expansion, out, blocks, stride;
    };
    // Sandler et al. 2018, table 2, with the strides of the first layers removed for 32×32 images.
    constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 1},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                 {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    std::int64_t in = 32;
    for (const Stage& stage : kStages) {
      for (std::int64_t block = 0; block < stage.blocks; ++block) {
        blocks_->push_back(InvertedResidual(in, stage.out, stage.expansion, block == 0 ? stage.stride : 1));
        in = stage.out;
      }
    }
    register_module("blocks", blocks_);
    conv2_ = register_module("conv2", QuantConv2d(pointwise(in, 1280)));
    norm2_ = register_module("norm2", NormAct(NormActOptions{1280}));
    fc_ = register_module("fc", QuantLinear(QuantLinearOptions{1280, classes}));
  }

  at::Tensor forward(const at::Tensor& images) override {
    const Activation x = blocks_->forward<Activation>(norm1_(conv1_(images)));
    return fc_(pixel_mean(norm2_(conv2_(x)).value));
  }

 private:
  QuantConv2d conv1_, conv2_{nullptr};
  NormAct norm1_, norm2_{nullptr};
  torch::nn::Sequential blocks_;
  QuantLinear fc_{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_cifar_mobilenet_v2(std::int64_t channels, std::int64_t classes) {
  return std::make_shared<CifarMobileNetV2>(channels, classes);
}

}  // namespace lowtide
