#include "lowtide/models/cifar_resnet.h"

#include <string>

#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/pixel_mean.h"
#include "lowtide/nn/quant_linear.h"
#include "lowtide/trunk/trunk.h"

namespace lowtide {
namespace {

class CifarResNet final : public ImageModel {
 public:
  CifarResNet(int blocks_a_group, std::int64_t channels, std::int64_t classes) {
    trunk_.append(register_block(
        *this, {.convs = {{.in_channels = channels, .out_channels = kWidth, .kernel = 3, .padding = 1}}}));
    std::int64_t in = kWidth;
    for (int group = 0; group < 3; ++group) {
      const std::int64_t out = kWidth << group;
      const auto modules = register_module("group" + std::to_string(group + 1), torch::nn::ModuleList());
      for (int block = 0; block < blocks_a_group; ++block) {
        trunk_.append(push_block(*modules, basic_block(in, out, group > 0 && block == 0 ? 2 : 1)));
        in = out;
      }
    }
    fc_ = register_module("fc", QuantLinear(QuantLinearOptions{in, classes}));
  }

  at::Tensor forward(const at::Tensor& images) override { return fc_(pixel_mean(trunk_.forward(images))); }

  std::optional<ImageLayout> layout() const override {
    return ImageLayout{.trunks = {trunk_}, .classifier = fc_};
  }

 private:
  static constexpr std::int64_t kWidth = 16;

  Trunk trunk_;
  QuantLinear fc_{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_cifar_resnet(int layers, std::int64_t channels, std::int64_t classes) {
  LOWTIDE_CHECK(layers >= 8 && layers % 6 == 2, "a CIFAR ResNet has 6n + 2 layers");
  return std::make_shared<CifarResNet>((layers - 2) / 6, channels, classes);
}

}  // namespace lowtide
