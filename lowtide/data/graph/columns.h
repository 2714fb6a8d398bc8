#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/base/csr.h"
#include "lowtide/data/graph/node_features.h"
#include "lowtide/io/lines.h"

namespace lowtide {

constexpr std::int64_t kMaxNodes = 0x7fffffff;  // their numbers are int32
constexpr std::int64_t kMaxFeatures = std::int64_t{1}
                                      << 20;  // columns: each is a row of weights in a network
constexpr std::int64_t kMaxClasses = 65536;   // far beyond any data set: a larger label is a mistake

// One whole number a line, without a header: counts, labels, numbers of nodes. A UserError that names file
// and line for anything else and for one outside lowest .. highest; `what` is what a line holds. One line more than
// `most` is read, to tell that there are more: what follows could be gigabytes.
std::vector<std::int64_t> parse_column(const LineSource& source, const std::string& what, std::int64_t lowest,
                                       std::int64_t highest, std::int64_t most);

// The class of every one of `count` nodes (or graphs: `of`).
std::vector<std::int32_t> parse_labels(const LineSource& source, std::int64_t count, const std::string& of);

// One line, source,target, of a graph of `nodes` nodes.
Edge parse_edge(std::string_view line, std::size_t number, const std::string& name, std::int64_t nodes);

// Such lines, without a header. Graph g has node_counts[g] nodes and edge_counts[g] lines; nodes are numbered within
// their graph.
std::vector<Edge> parse_edges(const LineSource& source, std::span<const std::int64_t> node_counts,
                              std::span<const std::int64_t> edge_counts);

// Checked to be as many as there are things that they are for.
void check_line_count(const std::string& name, std::int64_t lines, std::int64_t expected,
                      const std::string& of);

// The features of `nodes` nodes, a line each, separated by commas; all finite, and as many in each line.
NodeFeatures parse_features(const LineSource& source, std::int64_t nodes);

}  // namespace lowtide
