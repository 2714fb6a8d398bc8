#include "lowtide/data/graph/drawn_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "lowtide/base/random.h"

namespace lowtide {
namespace {

// https://ogb.stanford.edu/docs/nodeprop
constexpr std::array kPublished{
    GraphSize{"ogbn_arxiv", "OGBN-Arxiv", 169'343, 1'166'243, 128, 40, 90'941, 29'799}};

enum Stream : std::uint32_t { kNames, kEdges, kFeatures, kLabels };

RandomStream stream(std::uint64_t seed, Stream what, std::int64_t index = 0) {
  return {seed, RandomPurpose::kDrawnGraph, static_cast<std::uint64_t>(index), what};
}

std::vector<std::int32_t> shuffled_numbers(std::int64_t count, RandomStream random) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (std::size_t i = numbers.size(); i > 1; --i) {
    std::swap(numbers[i - 1], numbers[random.below(static_cast<std::uint32_t>(i))]);
  }
  return numbers;
}

// By age: node 0 cites nothing, the others about equally many.
std::vector<Edge> draw_citations(const GraphSize& size, std::uint64_t seed) {
  std::vector<Edge> edges;
  edges.reserve(static_cast<std::size_t>(size.edges));
  std::size_t first = 0;  // edge of the node that cites now
  for (std::int64_t e = 0; e < size.edges; ++e) {
    const auto source = static_cast<std::int32_t>(1 + e * (size.nodes - 1) / size.edges);
    if (!edges.empty() && edges.back().source != source) first = edges.size();
    RandomStream random = stream(seed, kEdges, e);
    const bool copies = first > 0 && random.below(2) == 0;
    const std::int32_t target =
        copies ? edges[random.below(static_cast<std::uint32_t>(first))].target
               : static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(source)));
    edges.push_back({source, target});
  }
  return edges;
}

}  // namespace

const GraphSize* published_size(const std::filesystem::path& folder) {
  const auto found = std::ranges::find(kPublished, folder.filename().string(), &GraphSize::folder);
  return found == kPublished.end() ? nullptr : &*found;
}

Graph draw_graph(const GraphSize& size, std::uint64_t seed) {
  Graph graph;
  graph.place = fmt::format("drawn, as large as {}", size.name);
  graph.nodes = size.nodes;
  graph.classes = size.classes;
  const std::vector<std::int32_t> name = shuffled_numbers(size.nodes, stream(seed, kNames));
  std::vector<Edge> edges = draw_citations(size, seed);
  for (Edge& edge : edges) {
    edge = {name[static_cast<std::size_t>(edge.source)], name[static_cast<std::size_t>(edge.target)]};
  }
  graph.edges = csr_from_edges(size.nodes, edges);
  graph.features.columns = size.features;
  graph.features.dense.resize(static_cast<std::size_t>(size.nodes * size.features));
  RandomStream features = stream(seed, kFeatures), labels = stream(seed, kLabels);
  for (float& feature : graph.features.dense) feature = 2 * features.uniform() - 1;
  for (std::int64_t i = 0; i < size.nodes; ++i) {
    graph.labels.push_back(static_cast<std::int32_t>(labels.below(static_cast<std::uint32_t>(size.classes))));
  }
  for (std::int32_t i = 0; i < size.nodes; ++i) {
    NodeSplit& split = graph.split;
    (i < size.train ? split.train : i < size.train + size.valid ? split.valid : split.test).push_back(i);
  }
  return graph;
}

}  // namespace lowtide
