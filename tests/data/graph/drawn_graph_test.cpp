#include "lowtide/data/graph/drawn_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lowtide {
namespace {

constexpr GraphSize kSmall{"small", "Small", 2000, 14'000, 3, 5, 1000, 400};

TEST(DrawnGraph, HasTheSizesAskedFor) {
  const Graph graph = draw_graph(kSmall, 1);
  EXPECT_EQ(graph.nodes, 2000);
  EXPECT_EQ(graph.edges.rows(), 2000);
  EXPECT_EQ(graph.edges.entries(), 14'000);
  EXPECT_EQ(graph.features.dense.size(), 6000u);
  EXPECT_EQ(graph.labels.size(), 2000u);
  EXPECT_EQ(std::set<std::int32_t>(graph.labels.begin(), graph.labels.end()),
            (std::set<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(graph.split.train.size(), 1000u);
  EXPECT_EQ(graph.split.valid.size(), 400u);
  EXPECT_EQ(graph.split.test.size(), 600u);
}

TEST(DrawnGraph, IsAFunctionOfItsSeed) {
  const Graph graph = draw_graph(kSmall, 1), again = draw_graph(kSmall, 1), other = draw_graph(kSmall, 2);
  EXPECT_EQ(graph.edges.indices, again.edges.indices);
  EXPECT_EQ(graph.features.dense, again.features.dense);
  EXPECT_NE(graph.edges.indices, other.edges.indices);
}

// No node cites itself, all but the oldest cite 7 or 8 others, and few are cited by very many: in a graph whose targets were
// drawn evenly the most cited of 2,000 nodes would be cited by 7 + 5·√7 = 20 at the utmost, and the oldest by a few more.
TEST(DrawnGraph, DegreesFallAsAPower) {
  const Graph graph = draw_graph(kSmall, 1);
  const std::vector<std::int64_t> cites = degrees(graph.edges), cited = column_degrees(graph.edges);
  EXPECT_EQ(std::ranges::count(cites, 0), 1);
  EXPECT_LE(std::ranges::max(cites), 8);
  EXPECT_GT(std::ranges::max(cited), 100);
  EXPECT_GT(std::ranges::count_if(cited, [](std::int64_t n) { return n < 7; }), 1200);
  for (std::int64_t i = 0; i < graph.nodes; ++i) {
    EXPECT_EQ(std::ranges::count(graph.edges.row(i), static_cast<std::int32_t>(i)), 0);
  }
}

TEST(DrawnGraph, OneNodeWithoutEdges) {
  const Graph graph = draw_graph({"one", "One", 1, 0, 1, 1, 1, 0}, 1);
  EXPECT_EQ(graph.edges.rows(), 1);
  EXPECT_EQ(graph.edges.entries(), 0);
}

TEST(DrawnGraph, SizesArePublishedByFolder) {
  const GraphSize* arxiv = published_size("data/ogbn_arxiv");
  ASSERT_NE(arxiv, nullptr);
  EXPECT_EQ(arxiv->nodes, 169'343);
  EXPECT_EQ(published_size("data/cora"), nullptr);
  EXPECT_EQ(published_size(""), nullptr);
}

}  // namespace
}  // namespace lowtide
