#include "lowtide/data/graph/columns.h"

#include <fmt/format.h>

#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/io/json_check.h"

namespace lowtide {
namespace {

constexpr std::int64_t kMaxReserved = std::int64_t{1} << 32;

// Appends the numbers of a line to `out`; returns how many.
std::int64_t append_row(std::string_view line, std::size_t number, const LineSource& source,
                        std::vector<float>& out) {
  std::int64_t columns = 0;
  for (bool more = true; more; ++columns) {
    const std::size_t end = line.find(',');
    const auto value = parse_number<float>(line.substr(0, end));
    if (!value || !std::isfinite(*value)) {
      throw UserError(fmt::format("{}:{}: feature {} is {}; expected a finite number", source.name, number,
                                  columns, shown(line.substr(0, end))));
    }
    out.push_back(*value);
    more = end != line.npos;
    if (more) line.remove_prefix(end + 1);
  }
  return columns;
}

}  // namespace

void check_line_count(const std::string& name, std::int64_t lines, std::int64_t expected,
                      const std::string& of) {
  if (lines == expected) return;
  throw UserError(fmt::format("{}: {} lines; expected {}, one for each {}", name, lines, expected, of));
}

std::vector<std::int64_t> parse_column(const LineSource& source, const std::string& what, std::int64_t lowest,
                                       std::int64_t highest, std::int64_t most) {
  std::vector<std::int64_t> values;
  source.for_each([&](std::string_view line, std::size_t number) {
    const auto value = parse_number<std::int64_t>(line);
    if (!value || *value < lowest || *value > highest) {
      throw UserError(fmt::format("{}:{}: {} {}; expected one whole number a line, {}..{}", source.name,
                                  number, what, shown(line), lowest, highest));
    }
    values.push_back(*value);
    if (static_cast<std::int64_t>(values.size()) > most)
      throw UserError(fmt::format("{}: more than {} lines; expected no more", source.name, most));
  });
  return values;
}

std::vector<std::int32_t> parse_labels(const LineSource& source, std::int64_t count, const std::string& of) {
  const auto labels = parse_column(source, "label", 0, kMaxClasses - 1, count);
  check_line_count(source.name, static_cast<std::int64_t>(labels.size()), count, of);
  return {labels.begin(), labels.end()};
}

Edge parse_edge(std::string_view line, std::size_t number, const std::string& name, std::int64_t nodes) {
  const std::size_t comma = line.find(',');
  const auto from = parse_number<std::int64_t>(line.substr(0, comma));
  const auto to = comma == line.npos ? std::nullopt : parse_number<std::int64_t>(line.substr(comma + 1));
  if (!from || !to) {
    throw UserError(
        fmt::format("{}:{}: {}; expected two columns, the numbers of two nodes", name, number, shown(line)));
  }
  for (const std::int64_t node : {*from, *to}) {
    if (node >= 0 && node < nodes) continue;
    throw UserError(fmt::format("{}:{}: an edge of node {}, which does not exist; expected 0..{}", name,
                                number, node, nodes - 1));
  }
  return {static_cast<std::int32_t>(*from), static_cast<std::int32_t>(*to)};
}

std::vector<Edge> parse_edges(const LineSource& source, std::span<const std::int64_t> node_counts,
                              std::span<const std::int64_t> edge_counts) {
  std::vector<Edge> edges;
  std::size_t graph = 0;
  std::int64_t left = edge_counts.empty() ? 0 : edge_counts[0];  // lines of this graph
  source.for_each([&](std::string_view line, std::size_t number) {
    while (left == 0 && graph + 1 < edge_counts.size()) left = edge_counts[++graph];
    if (left-- == 0) {
      throw UserError(
          fmt::format("{}:{}: more edges than its list of numbers of edges promises", source.name, number));
    }
    edges.push_back(parse_edge(line, number, source.name, node_counts[graph]));
  });
  for (; graph + 1 < edge_counts.size(); ++graph) left += edge_counts[graph + 1];
  if (left > 0) {
    throw UserError(fmt::format("{}: {} edges; expected {} more, as its list of numbers of edges promises",
                                source.name, edges.size(), left));
  }
  return edges;
}

NodeFeatures parse_features(const LineSource& source, std::int64_t nodes) {
  NodeFeatures features;
  std::int64_t lines = 0;
  source.for_each([&](std::string_view line, std::size_t number) {
    const std::int64_t columns = append_row(line, number, source, features.dense);
    if (lines == 0) {
      features.columns = columns;
      // At once, since growing would need twice the memory; but no more than 16 GB on the file's word alone.
      if (nodes <= kMaxReserved / columns) features.dense.reserve(static_cast<std::size_t>(columns * nodes));
    }
    if (columns != features.columns) {
      throw UserError(fmt::format("{}:{}: {} columns; expected {} as in the first line", source.name, number,
                                  columns, features.columns));
    }
    // Beyond the promise nothing more is read: what follows could be gigabytes.
    if (++lines > nodes) check_line_count(source.name, lines, nodes, "node");
  });
  check_line_count(source.name, lines, nodes, "node");
  return features;
}

}  // namespace lowtide
