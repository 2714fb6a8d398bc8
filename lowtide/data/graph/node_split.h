#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lowtide {

// Which nodes (or graphs) are trained on, chosen by and judged by. Drawn ones are in rising order.
struct NodeSplit {
  std::vector<std::int32_t> train;
  std::vector<std::int32_t> valid;
  std::vector<std::int32_t> test;

  bool empty() const { return train.empty() && valid.empty() && test.empty(); }
};

// A random part of all nodes to train, another to validate, the rest to test: 0.6 and 0.2, say. UserError for
// parts that leave one of the three without a node.
NodeSplit split_by_share(std::int64_t nodes, double train_share, double valid_share, std::uint64_t seed);

// So many nodes of every class to train and to validate, the rest to test, as Shchur et al., "Pitfalls of
// graph neural network evaluation", 2018, do with 20 and 30. UserError for a class with fewer.
NodeSplit split_by_class(std::span<const std::int32_t> labels, int classes, std::int64_t train_per_class,
                         std::int64_t valid_per_class, std::uint64_t seed);

}  // namespace lowtide
