#include "lowtide/data/graph/node_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/io/scratch.h"

namespace lowtide {
namespace {

void expect_complete(const NodeSplit& split, std::size_t nodes) {
  std::vector<std::int32_t> all, expected(nodes);
  for (const auto* part : {&split.train, &split.valid, &split.test}) {
    EXPECT_TRUE(std::is_sorted(part->begin(), part->end()));
    all.insert(all.end(), part->begin(), part->end());
  }
  std::sort(all.begin(), all.end());
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

TEST(NodeSplit, ByShare) {
  const NodeSplit split = split_by_share(1000, 0.6, 0.2, 3);
  EXPECT_EQ(split.train.size(), 600u);
  EXPECT_EQ(split.valid.size(), 200u);
  EXPECT_EQ(split.test.size(), 200u);
  expect_complete(split, 1000);
  EXPECT_EQ(split_by_share(1000, 0.6, 0.2, 3).valid, split.valid);
  EXPECT_NE(split_by_share(1000, 0.6, 0.2, 4).valid, split.valid);
  // Not a block of them: the mean of 200 draws out of 1,000 has a standard deviation of 18.
  EXPECT_NEAR(std::accumulate(split.valid.begin(), split.valid.end(), 0.0) / 200, 499.5, 75);
}

TEST(NodeSplit, SharesThatCannotBe) {
  for (const auto& [train, valid] :
       {std::pair{0.0, 0.5}, {0.5, 0.5}, {-0.1, 0.5}, {1.5, 0.1}, {0.5, 0.01}, {std::nan(""), 0.5}}) {
    EXPECT_TRUE(contains(user_error([&, t = train, v = valid] { split_by_share(10, t, v, 0); }),
                         "of 10 nodes to train", "expected shares between 0 and 1"));
  }
}

TEST(NodeSplit, ByClass) {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 300; ++i) labels.push_back(i % 7 == 0 ? 2 : i % 2);
  const NodeSplit split = split_by_class(labels, 3, 5, 8, 1);
  expect_complete(split, 300);
  EXPECT_EQ(split.train.size(), 15u);
  EXPECT_EQ(split.valid.size(), 24u);
  for (const int label : {0, 1, 2}) {
    const auto of_class = [&](std::int32_t node) { return labels[static_cast<std::size_t>(node)] == label; };
    EXPECT_EQ(std::count_if(split.train.begin(), split.train.end(), of_class), 5);
    EXPECT_EQ(std::count_if(split.valid.begin(), split.valid.end(), of_class), 8);
  }
  EXPECT_EQ(split_by_class(labels, 3, 5, 8, 1).train, split.train);
  EXPECT_NE(split_by_class(labels, 3, 5, 8, 2).train, split.train);
}

TEST(NodeSplit, AClassWithTooFew) {
  const std::vector<std::int32_t> labels = {0, 0, 0, 1, 1};
  EXPECT_EQ(split_by_class(labels, 2, 1, 1, 0).test.size(), 1u);
  EXPECT_TRUE(contains(user_error([&] { split_by_class(labels, 2, 2, 1, 0); }),
                       "class 1 has 2 nodes; expected at least 3, 2 to train and 1 to validate"));
}

}  // namespace
}  // namespace lowtide
