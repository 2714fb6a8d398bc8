#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lowtide/nn/norm_act.h"
#include "lowtide/nn/quant_conv2d.h"

namespace lowtide {

// Two 3×3 convolutions and a shortcut (He et al. 2016, figure 5 left), of the small and the large ResNets
// alike. The shortcut is a strided 1×1 convolution where the size or the channels change, else the input
// itself.
class BasicBlockImpl : public torch::nn::Module {
 public:
  BasicBlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride, bool frozen_norm = false);
  Activation forward(const Activation& x);

 private:
  QuantConv2d conv1_, conv2_, shortcut_{nullptr};
  NormAct norm1_, norm2_, shortcut_norm_{nullptr};
};
TORCH_MODULE(BasicBlock);

// 1×1, 3×3, 1×1 with four times the channels at the end (figure 5 right); the 3×3 has the stride.
class BottleneckImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kExpansion = 4;

  BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride, bool frozen_norm = false);
  Activation forward(const Activation& x);

 private:
  QuantConv2d conv1_, conv2_, conv3_, shortcut_{nullptr};
  NormAct norm1_, norm2_, norm3_, shortcut_norm_{nullptr};
};
TORCH_MODULE(Bottleneck);

}  // namespace lowtide
