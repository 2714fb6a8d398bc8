#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "lowtide/data/graph/graph.h"

namespace lowtide {

// How large a graph is.
struct GraphSize {
  std::string_view folder;  // as OGB unpacks it
  std::string_view name;
  std::int64_t nodes = 0, edges = 0, features = 0;
  int classes = 0;
  std::int64_t train = 0, valid = 0;  // nodes; the others are to test
};

// What is published of the graph that such a folder holds; nullptr for a folder of another name.
const GraphSize* published_size(const std::filesystem::path& folder);

// A graph of that size that nobody can learn from, for what depends on sizes alone: time, memory, cost. Nodes cite
// earlier ones: of an edge's target, a half is any of them, the other half one that an earlier edge cites (the copying model of
// Kumar et al., "Stochastic models for the web graph", 2000), which gives degrees that fall as a power, as citations have them.
// Nodes are numbered in no order.
Graph draw_graph(const GraphSize& size, std::uint64_t seed);

}  // namespace lowtide
