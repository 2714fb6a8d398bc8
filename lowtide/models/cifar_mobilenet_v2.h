#pragma once

#include <torch/nn/pimpl.h>

#include "lowtide/models/image_model.h"
#include "lowtide/nn/norm_act.h"
#include "lowtide/nn/quant_conv2d.h"

namespace lowtide {

// Expand 1×1, depthwise 3×3, project 1×1 (Sandler et al. 2018, figure 3); with stride 1 the input is added,
// through a 1×1 convolution where the channels change. ReLU, not ReLU6.
class InvertedResidualImpl : public torch::nn::Module {
 public:
  InvertedResidualImpl(std::int64_t in, std::int64_t out, std::int64_t expansion, std::int64_t stride);
  Activation forward(const Activation& x);

 private:
  bool adds_input_;
  QuantConv2d conv1_, conv2_, conv3_, shortcut_{nullptr};
  NormAct norm1_, norm2_, norm3_, shortcut_norm_{nullptr};
};
TORCH_MODULE(InvertedResidual);

// MobileNetV2 for 32×32 images: the first convolution and the second stage keep the size.
std::shared_ptr<ImageModel> make_cifar_mobilenet_v2(std::int64_t channels, std::int64_t classes);

}  // namespace lowtide
