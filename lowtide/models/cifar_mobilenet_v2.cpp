#include "lowtide/models/cifar_mobilenet_v2.h"

#include "lowtide/base/torch.h"
#include "lowtide/nn/pixel_mean.h"
#include "lowtide/nn/quant_linear.h"
#include "lowtide/trunk/trunk.h"

namespace lowtide {
namespace {

class CifarMobileNetV2 final : public ImageModel {
 public:
  CifarMobileNetV2(std::int64_t channels, std::int64_t classes) {
    trunk_.append(register_block(
        *this, {.convs = {{.in_channels = channels, .out_channels = 32, .kernel = 3, .padding = 1}}}));
    struct Group {
      std::int64_t expansion, out, blocks, stride;
    };
    // Sandler et al. 2018, table 2, with the strides of the first layers removed for 32×32 images.
    constexpr Group kGroups[] = {{1, 16, 1, 1}, {6, 24, 2, 1},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                 {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    const auto modules = register_module("blocks", torch::nn::ModuleList());
    std::int64_t in = 32;
    for (const Group& group : kGroups) {
      for (std::int64_t block = 0; block < group.blocks; ++block) {
        trunk_.append(push_block(
            *modules, inverted_residual(in, group.out, group.expansion, block == 0 ? group.stride : 1)));
        in = group.out;
      }
    }
    trunk_.append(register_block(*this, {.convs = {{.in_channels = in, .out_channels = kFeatures}}}, 2));
    fc_ = register_module("fc", QuantLinear(QuantLinearOptions{kFeatures, classes}));
  }

  at::Tensor forward(const at::Tensor& images) override { return fc_(pixel_mean(trunk_.forward(images))); }

  std::optional<ImageLayout> layout() const override {
    return ImageLayout{.trunks = {trunk_}, .classifier = fc_};
  }

 private:
  static constexpr std::int64_t kFeatures = 1280;

  Trunk trunk_;
  QuantLinear fc_{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_cifar_mobilenet_v2(std::int64_t channels, std::int64_t classes) {
  return std::make_shared<CifarMobileNetV2>(channels, classes);
}

}  // namespace lowtide
