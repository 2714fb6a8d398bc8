#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "lowtide/data/graph/graph.h"

namespace lowtide {

// Many graphs in one folder, of OGB's graph property tasks: each has edges and node features, and the set has
// one class a graph. The split counts graphs.
struct GraphSet {
  std::vector<Graph> graphs;
  std::vector<std::int32_t> labels;
  int classes = 0;
  NodeSplit split;
};

// OGB's folder as it is downloaded (https://ogb.stanford.edu). One graph with a class a node; a folder of many
// graphs is a UserError that says so. Edge features, years and relation types are not read.
Graph open_ogb_graph(const std::filesystem::path& folder);
GraphSet open_ogb_graphs(const std::filesystem::path& folder);

}  // namespace lowtide
