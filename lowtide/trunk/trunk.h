#pragma once

#include <vector>

#include "lowtide/quant/activation.h"
#include "lowtide/trunk/block.h"

namespace lowtide {

// Blocks in a row: the convolutional part of a network, which trains as one node of autograd. Its forward pass is a loop over
// the blocks and its backward pass the same loop reversed, so that what one block knows of its neighbour is at hand. The
// modules are registered by whoever owns the trunk. Where a network needs what lies between two blocks, it cuts its trunk
// there.
class Trunk {
 public:
  void append(ConvBlock block) { blocks_.push_back(std::move(block)); }
  Activation forward(const Activation& x) const;

  const std::vector<ConvBlock>& blocks() const { return blocks_; }

 private:
  std::vector<ConvBlock> blocks_;
};

}  // namespace lowtide
