#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/base/torch.h"

namespace lowtide {

// The sum of nodes in a fixed binary tree: of neighbours first, then of those sums, and so on; a last one without a
// neighbour goes up as it is. So the bits of a sum of floats depend on the leaves alone, not on who added which. Nodes are
// written over.
torch::Tensor tree_sum(std::vector<torch::Tensor> nodes);

// The same tree for one of several processes that have `leaves` neighbouring leaves each: sums that lie within every process
// are made as the leaves come. What is left are nodes of one level, an odd number of them; those of all processes, in their
// order, go into tree_sum.
class TreeSum {
 public:
  explicit TreeSum(std::int64_t leaves) : leaves_(leaves) {}

  void add(torch::Tensor leaf);  // which may be written over
  std::vector<torch::Tensor> take_nodes();

 private:
  std::int64_t leaves_;
  std::int64_t added_ = 0;
  std::vector<torch::Tensor> nodes_;
};

}  // namespace lowtide
