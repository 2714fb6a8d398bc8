#include "lowtide/ranks/tree_sum.h"

#include <gtest/gtest.h>

#include "lowtide/ranks/ranks.h"

namespace lowtide {
namespace {

// Numbers whose sum depends on the order: large ones beside small ones.
std::vector<torch::Tensor> leaves_of(std::int64_t count) {
  torch::manual_seed(7);
  std::vector<torch::Tensor> leaves;
  for (std::int64_t i = 0; i < count; ++i)
    leaves.push_back(torch::randn({1000}) * std::pow(10.0, static_cast<double>(i % 5)));
  return leaves;
}

// What the processes of a group would do, one after the other.
torch::Tensor sum_by(std::int64_t ranks, std::int64_t shards) {
  const std::vector<torch::Tensor> leaves = leaves_of(shards);
  std::vector<torch::Tensor> nodes;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    TreeSum sum(shards / ranks);
    for (std::int64_t i = 0; i < shards / ranks; ++i)
      sum.add(leaves[static_cast<std::size_t>(rank * (shards / ranks) + i)]);
    for (const torch::Tensor& node : sum.take_nodes()) nodes.push_back(node);
  }
  return tree_sum(nodes);
}

TEST(TreeSum, HasTheSameBitsForEveryNumberOfRanks) {
  for (const std::int64_t shards : {1, 2, 3, 4, 6, 8, 12, 15, 16, 24}) {
    const torch::Tensor expected = tree_sum(leaves_of(shards));
    for (std::int64_t ranks = 1; ranks <= shards; ++ranks) {
      if (shards % ranks != 0) continue;
      EXPECT_TRUE(sum_by(ranks, shards).equal(expected)) << shards << " shards on " << ranks << " ranks";
    }
  }
}

TEST(TreeSum, AddsNeighboursFirst) {
  const float large = 16777216;  // 2^24: one more is lost, two are not
  const std::vector<torch::Tensor> leaves{torch::tensor(large), torch::tensor(1.0f), torch::tensor(1.0f),
                                          torch::tensor(1.0f)};
  EXPECT_EQ(tree_sum(leaves).item<float>(), large + 2);  // (2^24 + 1) + (1 + 1)
  EXPECT_EQ(tree_sum({torch::tensor(1.0f), torch::tensor(1.0f), torch::tensor(large)}).item<float>(),
            large + 2);
}

TEST(Ranks, AloneHaveAllShardsAndKeepWhatTheyHave) {
  const auto ranks = alone();
  const Shards shards = ranks->shards_of(6);
  EXPECT_EQ(shards.first, 0);
  EXPECT_EQ(shards.count, 6);
  EXPECT_EQ(ranks->gather(std::string("mine")), std::vector<std::string>{"mine"});
  EXPECT_TRUE(ranks->sum({torch::ones({2}), torch::ones({2})}).equal(torch::full({2}, 2.0f)));
}

TEST(Shards, DivideItemsWithoutGaps) {
  const Shards shards{.total = 4};
  for (const std::int64_t items : {1, 3, 4, 5, 128}) {
    EXPECT_EQ(shards.begin_of(0, items), 0);
    EXPECT_EQ(shards.begin_of(4, items), items);
  }
  EXPECT_EQ(shards.begin_of(1, 128), 32);
}

}  // namespace
}  // namespace lowtide
