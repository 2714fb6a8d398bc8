#include "lowtide/data/graph/ogb.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "lowtide/base/error.h"
#include "lowtide/data/graph/columns.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxGraphs = std::int64_t{1} << 24;  // OGB's largest set has half a million

fs::path csv_path(const fs::path& folder, const std::string& name) {
  for (const char* ending : {".csv.gz", ".csv"}) {
    if (fs::exists(folder / (name + ending))) return folder / (name + ending);
  }
  throw UserError(
      fmt::format("{}: no such file, nor without .gz; expected a folder of OGB with raw/ and split/",
                  (folder / (name + ".csv.gz")).string()));
}

LineSource csv(const fs::path& folder, const std::string& name) {
  return lines_of_file(csv_path(folder, name));
}

int classes_of(const std::vector<std::int32_t>& labels) {
  return labels.empty() ? 0 : 1 + *std::max_element(labels.begin(), labels.end());
}

struct Counts {
  std::vector<std::int64_t> nodes;  // of each graph
  std::vector<std::int64_t> edges;
  std::int64_t all_nodes = 0;
};

Counts read_counts(const fs::path& raw) {
  Counts counts;
  const fs::path path = csv_path(raw, "num-node-list");
  counts.nodes = parse_column(lines_of_file(path), "number of nodes", 1, kMaxNodes, kMaxGraphs);
  counts.edges =
      parse_column(csv(raw, "num-edge-list"), "number of edges", 0, std::int64_t{1} << 40, kMaxGraphs);
  counts.all_nodes = std::accumulate(counts.nodes.begin(), counts.nodes.end(), std::int64_t{0});
  if (counts.nodes.empty() || counts.nodes.size() != counts.edges.size() || counts.all_nodes > kMaxNodes) {
    throw UserError(fmt::format(
        "{}: {} graphs of {} nodes in all; expected at least one, as many as num-edge-list has ({}), "
        "and at most {} nodes",
        path.string(), counts.nodes.size(), counts.all_nodes, counts.edges.size(), kMaxNodes));
  }
  return counts;
}

// Where there are several ways to split, somebody has to choose.
std::optional<fs::path> split_folder(const fs::path& folder) {
  std::vector<fs::path> found;
  if (fs::is_directory(folder / "split")) {
    for (const auto& entry : fs::directory_iterator(folder / "split")) {
      if (entry.is_directory()) found.push_back(entry.path());
    }
  }
  if (found.empty()) return std::nullopt;
  if (found.size() > 1) {
    throw UserError(fmt::format("{}: {} folders in it; expected one way to split: move the others away",
                                (folder / "split").string(), found.size()));
  }
  return found.front();
}

NodeSplit read_split(const fs::path& folder, std::int64_t count) {
  NodeSplit split;
  const auto place = split_folder(folder);
  if (!place) return split;
  std::vector<bool> taken(static_cast<std::size_t>(count));
  for (const auto& [name, part] :
       {std::pair{"train", &split.train}, {"valid", &split.valid}, {"test", &split.test}}) {
    const LineSource source = csv(*place, name);
    const auto items = parse_column(source, "item", 0, count - 1, count);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (taken[static_cast<std::size_t>(items[i])]) {
        throw UserError(fmt::format("{}:{}: item {} for the second time; expected each in one part, once",
                                    source.name, i + 1, items[i]));
      }
      taken[static_cast<std::size_t>(items[i])] = true;
    }
    if (items.empty())
      throw UserError(fmt::format("{}: empty; expected the items of this part", source.name));
    part->assign(items.begin(), items.end());
  }
  return split;
}

}  // namespace

Graph open_ogb_graph(const fs::path& folder) {
  const fs::path raw = folder / "raw";
  const Counts counts = read_counts(raw);
  if (counts.nodes.size() > 1) {
    throw UserError(fmt::format("{}: holds {} graphs; expected one, of a node property task (ogbn-…)",
                                folder.string(), counts.nodes.size()));
  }
  Graph graph;
  graph.place = folder.string();
  graph.nodes = counts.all_nodes;
  graph.labels = parse_labels(csv(raw, "node-label"), graph.nodes, "node");
  graph.classes = classes_of(graph.labels);
  graph.edges = csr_from_edges(graph.nodes, parse_edges(csv(raw, "edge"), counts.nodes, counts.edges));
  graph.features = parse_features(csv(raw, "node-feat"), graph.nodes);
  graph.split = read_split(folder, graph.nodes);
  return graph;
}

GraphSet open_ogb_graphs(const fs::path& folder) {
  const fs::path raw = folder / "raw";
  const Counts counts = read_counts(raw);
  const auto count = static_cast<std::int64_t>(counts.nodes.size());
  GraphSet set;
  set.labels = parse_labels(csv(raw, "graph-label"), count, "graph");
  set.classes = classes_of(set.labels);
  set.split = read_split(folder, count);
  const NodeFeatures features = parse_features(csv(raw, "node-feat"), counts.all_nodes);
  const std::vector<Edge> edges = parse_edges(csv(raw, "edge"), counts.nodes, counts.edges);
  auto feature = features.dense.begin();
  std::size_t first_edge = 0;
  for (std::size_t i = 0; i < counts.nodes.size(); ++i) {
    const auto edge_count = static_cast<std::size_t>(counts.edges[i]);
    const auto feature_end = feature + counts.nodes[i] * features.columns;
    Graph graph;
    graph.place = fmt::format("{}, graph {}", folder.string(), i);
    graph.nodes = counts.nodes[i];
    graph.edges = csr_from_edges(graph.nodes, std::span(edges).subspan(first_edge, edge_count));
    graph.features.columns = features.columns;
    graph.features.dense.assign(feature, feature_end);
    set.graphs.push_back(std::move(graph));
    feature = feature_end;
    first_edge += edge_count;
  }
  return set;
}

}  // namespace lowtide
