#pragma once

#include <torch/nn/module.h>

#include <array>
#include <vector>

#include "lowtide/trunk/trunk.h"

namespace lowtide {

// The convolutions of a ResNet for large images (He et al. 2016, table 1): 18, 34 (basic blocks), 50 or 101 layers
// (bottlenecks).
class ResNetTrunk {
 public:
  static constexpr int kGroups = 4;

  // Registers conv1, norm1 and layer1 to layer4 in the module that owns it.
  ResNetTrunk(torch::nn::Module& owner, int layers, std::int64_t channels, bool frozen_norm = false);

  // What each group gives: 1/4, 1/8, 1/16 and 1/32 of the image's sides.
  std::array<Activation, kGroups> forward(const at::Tensor& images);

  const Trunk& stem() const { return stem_; }  // before its max pooling
  const std::array<Trunk, kGroups>& groups() const { return groups_; }
  std::int64_t width(int group) const { return widths_[static_cast<std::size_t>(group)]; }  // its channels

 private:
  Trunk stem_;
  std::array<Trunk, kGroups> groups_;
  std::vector<std::int64_t> widths_;
};

}  // namespace lowtide
