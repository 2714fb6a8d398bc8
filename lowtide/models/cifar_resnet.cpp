#include "lowtide/models/cifar_resnet.h"

#include <torch/torch.h>

#include <string>

#include "lowtide/base/error.h"
#include "lowtide/models/residual_block.h"
#include "lowtide/nn/pixel_mean.h"
#include "lowtide/nn/quant_linear.h"

namespace lowtide {
namespace {

class CifarResNet final : public ImageModel {
 public:
  CifarResNet(int blocks_a_group, std::int64_t channels, std::int64_t classes)
      : conv1_(register_module(
            "conv1", QuantConv2d(QuantConv2dOptions{
                         .in_channels = channels, .out_channels = kWidth, .kernel = 3, .padding = 1}))),
        norm1_(register_module("norm1", NormAct(NormActOptions{kWidth}))) {
    std::int64_t in = kWidth;
    for (int group = 0; group < 3; ++group) {
      const std::int64_t out = kWidth << group;
      torch::nn::Sequential blocks;
      for (int block = 0; block < blocks_a_group; ++block) {
        blocks->push_back(BasicBlock(in, out, group > 0 && block == 0 ? 2 : 1));
        in = out;
      }
      groups_.push_back(register_module("group" + std::to_string(group + 1), blocks));
    }
    fc_ = register_module("fc", QuantLinear(QuantLinearOptions{in, classes}));
  }

  at::Tensor forward(const at::Tensor& images) override {
    Activation x = norm1_(conv1_(images));
    for (auto& group : groups_) x = group->forward<Activation>(x);
    return fc_(pixel_mean(x.value));
  }

 private:
  static constexpr std::int64_t kWidth = 16;

  QuantConv2d conv1_;
  NormAct norm1_;
  std::vector<torch::nn::Sequential> groups_;
  QuantLinear fc_{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_cifar_resnet(int layers, std::int64_t channels, std::int64_t classes) {
  LOWTIDE_CHECK(layers >= 8 && layers % 6 == 2, "a CIFAR ResNet has 6n + 2 layers");
  return std::make_shared<CifarResNet>((layers - 2) / 6, channels, classes);
}

}  // namespace lowtide
