#include "lowtide/ranks/tree_sum.h"

#include <utility>

#include "lowtide/base/error.h"

namespace lowtide {

torch::Tensor tree_sum(std::vector<torch::Tensor> nodes) {
  LOWTIDE_CHECK(!nodes.empty(), "the sum of no nodes");
  while (nodes.size() > 1) {
    std::vector<torch::Tensor> above;
    for (std::size_t i = 0; i + 1 < nodes.size(); i += 2) above.push_back(nodes[i].add_(nodes[i + 1]));
    if (nodes.size() % 2 == 1) above.push_back(nodes.back());
    nodes = std::move(above);
  }
  return nodes[0];
}

void TreeSum::add(torch::Tensor leaf) {
  nodes_.push_back(std::move(leaf));
  ++added_;
  // A sum of 2^k leaves ends here, and is one in every process, since 2^k divides the number of leaves.
  for (std::int64_t size = 2; added_ % size == 0 && leaves_ % size == 0; size *= 2) {
    nodes_[nodes_.size() - 2].add_(nodes_.back());
    nodes_.pop_back();
  }
}

std::vector<torch::Tensor> TreeSum::take_nodes() {
  LOWTIDE_CHECK(added_ == leaves_, "a tree with all of its leaves");
  added_ = 0;
  return std::exchange(nodes_, {});
}

}  // namespace lowtide
