#include "lowtide/models/imagenet_resnet.h"

#include <torch/torch.h>

#include <array>
#include <string>

#include "lowtide/base/error.h"
#include "lowtide/models/residual_block.h"
#include "lowtide/nn/quant_linear.h"

namespace lowtide {
namespace {

struct Depth {
  int layers;
  std::array<int, 4> blocks;
  bool bottleneck;
};

constexpr std::array kDepths{Depth{18, {2, 2, 2, 2}, false}, Depth{34, {3, 4, 6, 3}, false},
                             Depth{50, {3, 4, 6, 3}, true}};

class ImageNetResNet final : public ImageModel {
 public:
  ImageNetResNet(const Depth& depth, std::int64_t channels, std::int64_t classes)
      : conv1_(register_module(
            "conv1",
            QuantConv2d(QuantConv2dOptions{
                .in_channels = channels, .out_channels = 64, .kernel = 7, .stride = 2, .padding = 3}))),
        norm1_(register_module("norm1", NormAct(NormActOptions{64}))) {
    std::int64_t in = 64;
    for (int group = 0; group < 4; ++group) {
      const std::int64_t width = std::int64_t{64} << group;
      torch::nn::Sequential blocks;
      for (int block = 0; block < depth.blocks[group]; ++block) {
        const std::int64_t stride = group > 0 && block == 0 ? 2 : 1;
        if (depth.bottleneck) {
          blocks->push_back(Bottleneck(in, width, stride));
          in = BottleneckImpl::kExpansion * width;
        } else {
          blocks->push_back(BasicBlock(in, width, stride));
          in = width;
        }
      }
      groups_.push_back(register_module("layer" + std::to_string(group + 1), blocks));
    }
    fc_ = register_module("fc", QuantLinear(QuantLinearOptions{in, classes}));
  }

  at::Tensor forward(const at::Tensor& images) override {
    Activation x = torch::max_pool2d(norm1_(conv1_(images)), 3, 2, 1);
    for (auto& group : groups_) x = group->forward<Activation>(x);
    return fc_(x.value.mean({2, 3}));
  }

  std::vector<std::string> default_rules() const override {
    return {"conv1=fp32", "*.shortcut=fp32", "fc=fp32"};
  }

 private:
  QuantConv2d conv1_;
  NormAct norm1_;
  std::vector<torch::nn::Sequential> groups_;
  QuantLinear fc_{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_imagenet_resnet(int layers, std::int64_t channels, std::int64_t classes) {
  for (const Depth& depth : kDepths) {
    if (depth.layers == layers) return std::make_shared<ImageNetResNet>(depth, channels, classes);
  }
  invariant_failed("a published depth", __FILE__, __LINE__, std::to_string(layers));
}

}  // namespace lowtide
