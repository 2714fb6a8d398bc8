#include "lowtide/models/resnet_trunk.h"

#include <torch/torch.h>

#include <algorithm>
#include <string>

#include "lowtide/base/error.h"
#include "lowtide/models/residual_block.h"

namespace lowtide {
namespace {

constexpr std::int64_t kFirstWidth = 64;

struct Depth {
  int layers;
  std::array<int, ResNetTrunk::kGroups> blocks;
  bool bottleneck;
};

constexpr std::array kDepths{Depth{18, {2, 2, 2, 2}, false}, Depth{34, {3, 4, 6, 3}, false},
                             Depth{50, {3, 4, 6, 3}, true}, Depth{101, {3, 4, 23, 3}, true}};

const Depth& find_depth(int layers) {
  const auto found =
      std::find_if(kDepths.begin(), kDepths.end(), [layers](const Depth& d) { return d.layers == layers; });
  LOWTIDE_CHECK(found != kDepths.end(), "a published depth");
  return *found;
}

}  // namespace

ResNetTrunk::ResNetTrunk(torch::nn::Module& owner, int layers, std::int64_t channels, bool frozen_norm)
    : conv1_(owner.register_module("conv1", QuantConv2d(QuantConv2dOptions{.in_channels = channels,
                                                                           .out_channels = kFirstWidth,
                                                                           .kernel = 7,
                                                                           .stride = 2,
                                                                           .padding = 3}))),
      norm1_(owner.register_module("norm1",
                                   NormAct(NormActOptions{.channels = kFirstWidth, .frozen = frozen_norm}))) {
  const Depth& depth = find_depth(layers);
  std::int64_t in = kFirstWidth;
  for (int group = 0; group < kGroups; ++group) {
    const std::int64_t width = kFirstWidth << group;
    torch::nn::Sequential blocks;
    for (int block = 0; block < depth.blocks[static_cast<std::size_t>(group)]; ++block) {
      const std::int64_t stride = group > 0 && block == 0 ? 2 : 1;
      if (depth.bottleneck) {
        blocks->push_back(Bottleneck(in, width, stride, frozen_norm));
        in = BottleneckImpl::kExpansion * width;
      } else {
        blocks->push_back(BasicBlock(in, width, stride, frozen_norm));
        in = width;
      }
    }
    groups_.push_back(owner.register_module("layer" + std::to_string(group + 1), blocks));
    widths_.push_back(in);
  }
}

std::array<Activation, ResNetTrunk::kGroups> ResNetTrunk::forward(const at::Tensor& images) {
  std::array<Activation, kGroups> outputs;
  Activation x = torch::max_pool2d(norm1_(conv1_(images)), 3, 2, 1);
  for (std::size_t group = 0; group < outputs.size(); ++group) {
    outputs[group] = x = groups_[group]->forward<Activation>(x);
  }
  return outputs;
}

}  // namespace lowtide
