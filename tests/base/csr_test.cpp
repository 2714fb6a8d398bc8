#include "lowtide/base/csr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lowtide {
namespace {

using ::testing::ElementsAre;

// 0 → 2, 0 → 1, 2 → 0, 3 → 3, 0 → 2 again; node 4 alone.
Csr small_graph() {
  const std::vector<Edge> edges = {{0, 2}, {0, 1}, {2, 0}, {3, 3}, {0, 2}};
  return csr_from_edges(5, edges);
}

TEST(Csr, RowsAreSorted) {
  const Csr graph = small_graph();
  EXPECT_EQ(graph.rows(), 5);
  EXPECT_EQ(graph.columns, 5);
  EXPECT_THAT(graph.offsets, ElementsAre(0, 3, 3, 4, 5, 5));
  EXPECT_THAT(graph.indices, ElementsAre(1, 2, 2, 0, 3));
  EXPECT_THAT(degrees(graph), ElementsAre(3, 0, 1, 1, 0));
  EXPECT_THAT(column_degrees(graph), ElementsAre(1, 1, 2, 1, 0));
}

TEST(Csr, UndirectedHasEveryEdgeOnceEachWay) {
  const Csr graph = undirected(small_graph());
  EXPECT_THAT(graph.offsets, ElementsAre(0, 2, 3, 4, 5, 5));
  EXPECT_THAT(graph.indices, ElementsAre(1, 2, 0, 0, 3));
  const Csr again = undirected(graph);
  EXPECT_EQ(again.offsets, graph.offsets);
  EXPECT_EQ(again.indices, graph.indices);
}

TEST(Csr, OneSelfLoopANode) {
  const Csr graph = with_self_loops(undirected(small_graph()));
  EXPECT_THAT(graph.offsets, ElementsAre(0, 3, 5, 7, 8, 9));
  EXPECT_THAT(graph.indices, ElementsAre(0, 1, 2, 0, 1, 0, 2, 3, 4));
  EXPECT_EQ(with_self_loops(graph).indices, graph.indices);
}

TEST(Csr, GcnWeightsByHand) {
  // With self loops: degrees 3, 2, 2, 1, 1.
  const Csr graph = with_self_loops(undirected(small_graph()));
  const float third = 1.0f / 3, side = static_cast<float>(1 / std::sqrt(6.0));
  EXPECT_THAT(gcn_weights(graph), ElementsAre(third, side, side, side, 0.5f, side, 0.5f, 1.0f, 1.0f));
}

TEST(Csr, GcnWeightsOfADirectedGraph) {
  // 0 → 1, 0 → 2, 1 → 2: rows have 2, 1, 0 entries, columns 0, 1, 2.
  const std::vector<Edge> edges = {{0, 1}, {0, 2}, {1, 2}};
  const auto root = [](double value) { return static_cast<float>(1 / std::sqrt(value)); };
  EXPECT_THAT(gcn_weights(csr_from_edges(3, edges)), ElementsAre(root(2), root(4), root(2)));
}

TEST(Csr, NoEdges) {
  const Csr graph = csr_from_edges(3, {});
  EXPECT_EQ(graph.rows(), 3);
  EXPECT_EQ(undirected(graph).entries(), 0);
  EXPECT_THAT(with_self_loops(graph).indices, ElementsAre(0, 1, 2));
  EXPECT_TRUE(gcn_weights(graph).empty());
}

}  // namespace
}  // namespace lowtide
