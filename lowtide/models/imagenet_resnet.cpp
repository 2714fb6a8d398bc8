#include "lowtide/models/imagenet_resnet.h"

#include "lowtide/base/torch.h"
#include "lowtide/models/resnet_trunk.h"
#include "lowtide/nn/pixel_mean.h"
#include "lowtide/nn/quant_linear.h"

namespace lowtide {
namespace {

class ImageNetResNet final : public ImageModel {
 public:
  ImageNetResNet(int layers, std::int64_t channels, std::int64_t classes)
      : trunk_(*this, layers, channels),
        fc_(register_module(
            "fc", QuantLinear(QuantLinearOptions{trunk_.width(ResNetTrunk::kGroups - 1), classes}))) {}

  at::Tensor forward(const at::Tensor& images) override {
    return fc_(pixel_mean(trunk_.forward(images).back().value));
  }

  std::vector<std::string> default_rules() const override {
    return {"conv1=fp32", "*.shortcut=fp32", "fc=fp32"};
  }

  std::optional<ImageLayout> layout() const override {
    ImageLayout layout{.trunks = {trunk_.stem()}, .pools_first = true, .classifier = fc_};
    layout.trunks.insert(layout.trunks.end(), trunk_.groups().begin(), trunk_.groups().end());
    return layout;
  }

 private:
  ResNetTrunk trunk_;
  QuantLinear fc_;
};

}  // namespace

std::shared_ptr<ImageModel> make_imagenet_resnet(int layers, std::int64_t channels, std::int64_t classes) {
  return std::make_shared<ImageNetResNet>(layers, channels, classes);
}

}  // namespace lowtide
