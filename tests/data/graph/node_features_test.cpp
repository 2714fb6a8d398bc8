#include "lowtide/data/graph/node_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/io/scratch.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;

// Row 0: 2 in column 1, 6 in column 3; row 1: nothing; row 2: −1 in column 0.
NodeFeatures sparse_features() {
  NodeFeatures features;
  features.columns = 4;
  features.sparse.columns = 4;
  features.sparse.offsets = {0, 2, 2, 3};
  features.sparse.indices = {1, 3, 0};
  features.values = {2, 6, -1};
  return features;
}

TEST(NodeFeatures, StandardiseByHand) {
  NodeFeatures features;
  features.columns = 2;
  features.dense = {1, 5, 3, 5, 8, 5};
  // Column 0: mean 4, squares of the distances 9, 1, 16, deviation sqrt(26 / 3). Column 1 is constant.
  standardise(features);
  const auto deviation = static_cast<float>(std::sqrt(26.0 / 3));
  EXPECT_THAT(features.dense,
              ElementsAre(FloatEq(-3 / deviation), 0, FloatEq(-1 / deviation), 0, FloatEq(4 / deviation), 0));
}

TEST(NodeFeatures, StandardiseKeepsSmallDifferencesOfLargeNumbers) {
  NodeFeatures features;
  features.columns = 1;
  features.dense = {16'777'214, 16'777'216};  // the next but one float: mean and deviation are exact
  standardise(features);
  EXPECT_THAT(features.dense, ElementsAre(-1, 1));
}

TEST(NodeFeatures, SparseOnesAreNotStandardised) {
  NodeFeatures features = sparse_features();
  EXPECT_TRUE(
      contains(user_error([&] { standardise(features); }), "4 sparse columns cannot be standardised"));
}

TEST(NodeFeatures, RowsSumToOne) {
  NodeFeatures features;
  features.columns = 3;
  features.dense = {1, 0, 3, 0, 0, 0, -2, 1, 1};
  normalise_rows(features);
  EXPECT_THAT(features.dense, ElementsAre(0.25f, 0, 0.75f, 0, 0, 0, -0.5f, 0.25f, 0.25f));
  NodeFeatures sparse = sparse_features();
  normalise_rows(sparse);
  EXPECT_THAT(sparse.values, ElementsAre(0.25f, 0.75f, -1));
}

TEST(NodeFeatures, GatherDenseAndSparse) {
  NodeFeatures dense;
  dense.columns = 2;
  dense.dense = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> nodes = {2, 0, 2};
  std::vector<float> out(6, 99);
  gather_rows(dense, nodes, out.data());
  EXPECT_THAT(out, ElementsAre(5, 6, 1, 2, 5, 6));
  const std::vector<std::int32_t> all = {0, 1, 2};
  out.assign(12, 99);
  gather_rows(sparse_features(), all, out.data());
  EXPECT_THAT(out, ElementsAre(0, 2, 0, 6, 0, 0, 0, 0, -1, 0, 0, 0));
}

}  // namespace
}  // namespace lowtide
