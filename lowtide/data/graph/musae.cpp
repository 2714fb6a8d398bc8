#include "lowtide/data/graph/musae.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lowtide/base/error.h"
#include "lowtide/data/graph/class_names.h"
#include "lowtide/data/graph/columns.h"
#include "lowtide/data/graph/named_files.h"
#include "lowtide/io/json_check.h"
#include "lowtide/io/mapped_file.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// Sorted keys: a file has one for each node, and Json would search them all for every one.
using SortedJson = nlohmann::json;

struct TargetColumns {
  std::size_t count = 0;
  std::size_t id = 0;
  std::size_t label = 0;
};

TargetColumns find_columns(const std::vector<std::string>& header, const std::string& name) {
  const auto find = [&](const char* wanted) {
    return static_cast<std::size_t>(std::find(header.begin(), header.end(), wanted) - header.begin());
  };
  TargetColumns columns{header.size(), find("id"), std::min(find("page_type"), find("ml_target"))};
  if (columns.id == header.size() || columns.label == header.size()) {
    throw UserError(fmt::format(
        "{}:1: a column is missing; expected a header with id, and page_type or ml_target", name));
  }
  return columns;
}

struct Target {
  std::int64_t node;
  std::string class_name;
};

Target parse_target(std::string_view line, std::size_t number, const TargetColumns& columns,
                    const std::string& name) {
  const auto fields = split_csv(line);
  if (!fields || fields->size() != columns.count) {
    throw UserError(fmt::format("{}:{}: {} columns; expected {} as in the header", name, number,
                                fields ? fmt::to_string(fields->size()) : "unmatched quotes in its",
                                columns.count));
  }
  const auto node = parse_number<std::int64_t>((*fields)[columns.id]);
  if (!node || *node < 0 || *node > kMaxNodes || (*fields)[columns.label].empty()) {
    throw UserError(fmt::format("{}:{}: node {} of class {}; expected a whole number and a name", name,
                                number, shown((*fields)[columns.id]), shown((*fields)[columns.label])));
  }
  return {*node, (*fields)[columns.label]};
}

// The columns of a node, rising: a feature is there or not, however often it is named.
std::vector<std::int32_t> parse_feature_list(const SortedJson& list, const std::string& node,
                                             const std::string& name) {
  std::vector<std::int32_t> columns;
  for (const SortedJson& feature : list) {
    const bool whole = feature.is_number_unsigned() && feature.get<std::uint64_t>() < kMaxFeatures;
    if (!whole) {
      throw UserError(fmt::format("{}: node {} has the feature {}; expected whole numbers, 0..{}", name,
                                  shown(node), shown(feature.dump()), kMaxFeatures - 1));
    }
    columns.push_back(feature.get<std::int32_t>());
  }
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  return columns;
}

}  // namespace

std::vector<std::string> parse_musae_classes(const LineSource& source) {
  TargetColumns columns;
  std::vector<Target> targets;
  source.for_each([&](std::string_view line, std::size_t number) {
    if (number == 1) {
      columns = find_columns(split_csv(line).value_or(std::vector<std::string>{}), source.name);
    } else {
      targets.push_back(parse_target(line, number, columns, source.name));
    }
  });
  if (targets.empty())
    throw UserError(fmt::format("{}: no nodes in it; expected a line for each", source.name));
  std::vector<std::string> classes(targets.size());
  for (Target& target : targets) {
    if (target.node >= static_cast<std::int64_t>(classes.size()) ||
        !classes[static_cast<std::size_t>(target.node)].empty()) {
      throw UserError(fmt::format("{}: node {} among {}; expected 0..{}, each once", source.name, target.node,
                                  classes.size(), classes.size() - 1));
    }
    classes[static_cast<std::size_t>(target.node)] = std::move(target.class_name);
  }
  return classes;
}

std::vector<Edge> parse_musae_edges(const LineSource& source, std::int64_t nodes) {
  std::vector<Edge> edges;
  source.for_each([&](std::string_view line, std::size_t number) {
    if (number > 1) {
      edges.push_back(parse_edge(line, number, source.name, nodes));
    } else if (split_fields(line, ',').size() != 2 ||
               parse_number<std::int64_t>(split_fields(line, ',')[0])) {
      throw UserError(
          fmt::format("{}:1: {}; expected a header of two columns, id_1,id_2", source.name, shown(line)));
    }
  });
  return edges;
}

NodeFeatures parse_musae_features(std::string_view text, const std::string& name, std::int64_t nodes) {
  constexpr std::size_t kFormatDepth = 2;  // an object of lists
  const auto object = parse_json<SortedJson>(text, name, "fetch the file again", kFormatDepth);
  if (!object.is_object() || static_cast<std::int64_t>(object.size()) != nodes) {
    throw UserError(fmt::format("{}: features of {} nodes; expected an object with a list for each of {}",
                                name, object.is_object() ? object.size() : 0, nodes));
  }
  std::vector<std::vector<std::int32_t>> of_node(static_cast<std::size_t>(nodes));
  for (const auto& [key, list] : object.items()) {
    const auto node = parse_number<std::int64_t>(key);
    // The size is right, and no key is there twice but for ways to write it: 7 and 07.
    if (!node || *node < 0 || *node >= nodes || key != fmt::to_string(*node) || !list.is_array()) {
      throw UserError(fmt::format("{}: {}: {}; expected a node, 0..{}, and the list of its features", name,
                                  shown(key), list.type_name(), nodes - 1));
    }
    of_node[static_cast<std::size_t>(*node)] = parse_feature_list(list, key, name);
  }
  NodeFeatures features;
  for (const auto& columns : of_node) {
    if (!columns.empty()) features.columns = std::max<std::int64_t>(features.columns, columns.back() + 1);
    features.sparse.indices.insert(features.sparse.indices.end(), columns.begin(), columns.end());
    features.sparse.offsets.push_back(features.sparse.entries());
  }
  if (features.columns == 0) throw UserError(fmt::format("{}: no node has a feature; expected some", name));
  features.sparse.columns = features.columns;
  features.values.assign(features.sparse.indices.size(), 1.0f);
  return features;
}

Graph open_musae(const fs::path& folder) {
  const fs::path target = only_file(folder, "_target.csv");
  Graph graph;
  graph.place = folder.string();
  const auto classes = parse_musae_classes(lines_of_file(target));
  graph.nodes = static_cast<std::int64_t>(classes.size());
  label_by_name(classes, graph);
  const auto edges = parse_musae_edges(lines_of_file(only_file(folder, "_edges.csv")), graph.nodes);
  graph.edges = csr_from_edges(graph.nodes, edges);
  const fs::path features = only_file(folder, "_features.json");
  graph.features =
      parse_musae_features(text_of(MappedFile(features).bytes()), features.string(), graph.nodes);
  return graph;
}

}  // namespace lowtide
