#include "lowtide/models/resnet_trunk.h"

#include <algorithm>
#include <string>

#include "lowtide/base/error.h"
#include "lowtide/base/torch.h"

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

ResNetTrunk::ResNetTrunk(torch::nn::Module& owner, int layers, std::int64_t channels, bool frozen_norm) {
  stem_.append(register_block(
      owner,
      {.convs =
           {{.in_channels = channels, .out_channels = kFirstWidth, .kernel = 7, .stride = 2, .padding = 3}},
       .frozen_norm = frozen_norm}));
  const Depth& depth = find_depth(layers);
  std::int64_t in = kFirstWidth;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    const std::int64_t width = kFirstWidth << group;
    const auto modules = owner.register_module("layer" + std::to_string(group + 1), torch::nn::ModuleList());
    for (int block = 0; block < depth.blocks[group]; ++block) {
      const std::int64_t stride = group > 0 && block == 0 ? 2 : 1;
      ConvBlockOptions options =
          depth.bottleneck ? bottleneck(in, width, stride) : basic_block(in, width, stride);
      options.frozen_norm = frozen_norm;
      groups_[group].append(push_block(*modules, options));
      in = options.convs.back().out_channels;
    }
    widths_.push_back(in);
  }
}

std::array<Activation, ResNetTrunk::kGroups> ResNetTrunk::forward(const at::Tensor& images) {
  std::array<Activation, kGroups> outputs;
  Activation x = torch::max_pool2d(stem_.forward(images).value, 3, 2, 1);
  for (std::size_t group = 0; group < outputs.size(); ++group) {
    outputs[group] = x = groups_[group].forward(x);
  }
  return outputs;
}

}  // namespace lowtide
