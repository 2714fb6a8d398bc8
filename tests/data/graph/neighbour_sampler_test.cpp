#include "lowtide/data/graph/neighbour_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace lowtide {
namespace {

using ::testing::ElementsAre;

// Node i has an edge to every j where (i + 3 j) mod 7 < 3, itself left out: some 43 % of all pairs.
Csr dense_graph(std::int32_t nodes) {
  std::vector<Edge> edges;
  for (std::int32_t i = 0; i < nodes; ++i) {
    for (std::int32_t j = 0; j < nodes; ++j) {
      if (i != j && (i + 3 * j) % 7 < 3) edges.push_back({i, j});
    }
  }
  return csr_from_edges(nodes, edges);
}

// The nodes of the graph that output `row` of a block gathers.
std::vector<std::int32_t> gathered(const Block& block, std::int64_t row) {
  std::vector<std::int32_t> nodes;
  for (const std::int32_t local : block.edges.row(row))
    nodes.push_back(block.inputs.at(static_cast<std::size_t>(local)));
  return nodes;
}

void expect_sound(const Block& block, std::span<const std::int32_t> outputs, const Csr& graph,
                  std::size_t fan_out) {
  ASSERT_EQ(block.edges.rows(), static_cast<std::int64_t>(outputs.size()));
  ASSERT_EQ(block.edges.columns, static_cast<std::int64_t>(block.inputs.size()));
  EXPECT_TRUE(std::equal(outputs.begin(), outputs.end(), block.inputs.begin()));
  for (std::int64_t i = 0; i < block.edges.rows(); ++i) {
    const auto neighbours = graph.row(outputs[static_cast<std::size_t>(i)]);
    const auto nodes = gathered(block, i);
    EXPECT_EQ(nodes.size(), std::min(neighbours.size(), fan_out));
    EXPECT_EQ(std::set<std::int32_t>(nodes.begin(), nodes.end()).size(), nodes.size());  // without repetition
    for (const std::int32_t node : nodes) {
      EXPECT_TRUE(std::binary_search(neighbours.begin(), neighbours.end(), node));
    }
  }
}

TEST(NeighbourSampler, BlocksFitTogether) {
  const Csr graph = dense_graph(200);
  NeighbourSampler sampler(graph, {4, 7}, 1);
  const std::vector<std::int32_t> nodes = {5, 17, 3};
  const auto blocks = sampler.sample(9, nodes);
  ASSERT_EQ(blocks.size(), 2u);
  expect_sound(blocks[1], nodes, graph, 7);
  expect_sound(blocks[0], blocks[1].inputs, graph, 4);
  for (const Block& block : blocks) {
    EXPECT_EQ(std::set<std::int32_t>(block.inputs.begin(), block.inputs.end()).size(), block.inputs.size());
  }
}

TEST(NeighbourSampler, TakesAllOfFew) {
  const std::vector<Edge> edges = {{0, 1}, {0, 2}, {2, 2}};
  const Csr graph = csr_from_edges(3, edges);
  NeighbourSampler sampler(graph, {2}, 1);
  const std::vector<std::int32_t> nodes = {2, 1, 0};
  const auto blocks = sampler.sample(0, nodes);
  EXPECT_THAT(blocks[0].inputs, ElementsAre(2, 1, 0));
  EXPECT_THAT(blocks[0].edges.offsets, ElementsAre(0, 1, 1, 3));  // node 1 has no neighbour
  EXPECT_THAT(blocks[0].edges.indices, ElementsAre(0, 1, 0));
}

TEST(NeighbourSampler, ANodeDrawsTheSameInAnyCompany) {
  const Csr graph = dense_graph(300);
  NeighbourSampler one(graph, {5, 5}, 1), other(graph, {5, 5}, 1);
  std::vector<std::int32_t> nodes(100);
  std::iota(nodes.begin(), nodes.end(), 50);
  std::vector<std::int32_t> reversed(nodes.rbegin(), nodes.rend());
  other.sample(2, nodes);  // what was drawn before does not matter
  const auto blocks = one.sample(3, nodes), backwards = other.sample(3, reversed);
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(gathered(blocks[1], i), gathered(backwards[1], 99 - i));
  }
  const std::vector<std::int32_t> alone = {77};
  EXPECT_EQ(gathered(other.sample(3, alone)[1], 0), gathered(blocks[1], 27));
}

TEST(NeighbourSampler, DiffersBySeedStepLayerAndNode) {
  const Csr graph = dense_graph(300);
  const std::vector<std::int32_t> node = {7};
  const auto drawn = [&](std::uint64_t seed, std::int64_t step) {
    const auto blocks = NeighbourSampler(graph, {20, 20}, seed).sample(step, node);
    return std::pair{gathered(blocks[0], 0), gathered(blocks[1], 0)};
  };
  EXPECT_EQ(drawn(1, 2), drawn(1, 2));
  EXPECT_NE(drawn(1, 2).second, drawn(1, 3).second);
  EXPECT_NE(drawn(1, 2).second, drawn(2, 2).second);
  EXPECT_NE(drawn(1, 2).first, drawn(1, 2).second);  // its neighbours in the two layers
}

TEST(NeighbourSampler, ANodeThatIsThereTwice) {
  const Csr graph = dense_graph(50);
  NeighbourSampler sampler(graph, {3}, 1);
  const std::vector<std::int32_t> nodes = {4, 9, 4};
  const Block block = sampler.sample(0, nodes)[0];
  expect_sound(block, nodes, graph, 3);
  EXPECT_EQ(gathered(block, 0), gathered(block, 2));
  const Block again = sampler.sample(0, nodes)[0];  // nothing is left from the first time
  EXPECT_EQ(again.inputs, block.inputs);
  EXPECT_EQ(again.edges.indices, block.edges.indices);
}

TEST(NeighbourSampler, EveryNeighbourIsAsLikely) {
  const Csr graph = dense_graph(100);
  NeighbourSampler sampler(graph, {10}, 1);
  const std::vector<std::int32_t> node = {0};
  const auto neighbours = graph.row(0);
  constexpr int kSteps = 5000;
  std::map<std::int32_t, int> times;
  for (int step = 0; step < kSteps; ++step) {
    for (const std::int32_t neighbour : gathered(sampler.sample(step, node)[0], 0)) ++times[neighbour];
  }
  // Each is drawn with probability p = 10 / degree; five standard deviations of a count of 5,000 draws.
  const double p = 10.0 / static_cast<double>(neighbours.size());
  for (const std::int32_t neighbour : neighbours) {
    EXPECT_NEAR(times[neighbour], kSteps * p, 5 * std::sqrt(kSteps * p * (1 - p))) << neighbour;
  }
}

}  // namespace
}  // namespace lowtide
