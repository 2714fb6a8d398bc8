#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/data/graph/graph.h"
#include "lowtide/io/lines.h"

namespace lowtide {

// MUSAE's graphs of pages and accounts (Rozemberczki et al., "Multi-scale attributed node embedding", 2021):
//   NAME_target.csv     with a header; node numbers in the column id, classes in page_type or ml_target
//   NAME_edges.csv      id_1,id_2
//   NAME_features.json  {"node": [features that it has]}
Graph open_musae(const std::filesystem::path& folder);

// The class of every node. UserError unless nodes are 0, 1, 2 … in any order, each once.
std::vector<std::string> parse_musae_classes(const LineSource& source);
std::vector<Edge> parse_musae_edges(const LineSource& source, std::int64_t nodes);
NodeFeatures parse_musae_features(std::string_view text, const std::string& name, std::int64_t nodes);

}  // namespace lowtide
