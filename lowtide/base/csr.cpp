#include "lowtide/base/csr.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Counting sort by row: `for_each(take)` calls take(row, column) for every entry, the same ones each time.
template <typename ForEach>
Csr sorted_rows(std::int64_t nodes, ForEach for_each) {
  LOWTIDE_CHECK(nodes >= 0 && nodes <= std::numeric_limits<std::int32_t>::max(), "nodes have 31 bits");
  Csr result;
  result.columns = nodes;
  result.offsets.assign(at(nodes) + 1, 0);
  for_each([&](std::int32_t row, std::int32_t) { ++result.offsets[at(row) + 1]; });
  std::partial_sum(result.offsets.begin(), result.offsets.end(), result.offsets.begin());
  result.indices.resize(at(result.offsets.back()));
  std::vector<std::int64_t> next(result.offsets.begin(), result.offsets.end() - 1);
  for_each([&](std::int32_t row, std::int32_t column) { result.indices[at(next[at(row)]++)] = column; });
  for (std::int64_t i = 0; i < nodes; ++i) {
    std::sort(result.indices.begin() + result.offsets[at(i)],
              result.indices.begin() + result.offsets[at(i) + 1]);
  }
  return result;
}

// Leaves one of equal entries in sorted rows.
void remove_duplicates(Csr& graph) {
  std::int64_t kept = 0;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < graph.rows(); ++i) {
    const std::int64_t end = graph.offsets[at(i) + 1];
    const auto first = graph.indices.begin() + begin;
    const auto last = std::unique(first, graph.indices.begin() + end);
    kept += std::move(first, last, graph.indices.begin() + kept) - (graph.indices.begin() + kept);
    begin = end;
    graph.offsets[at(i) + 1] = kept;
  }
  graph.indices.resize(at(kept));
  graph.indices.shrink_to_fit();
}

template <typename Take>
void for_each_entry(const Csr& graph, Take take) {
  for (std::int64_t i = 0; i < graph.rows(); ++i) {
    for (const std::int32_t j : graph.row(i)) take(static_cast<std::int32_t>(i), j);
  }
}

}  // namespace

Csr csr_from_edges(std::int64_t nodes, std::span<const Edge> edges) {
  return sorted_rows(nodes, [&](auto take) {
    for (const Edge& edge : edges) take(edge.source, edge.target);
  });
}

Csr undirected(const Csr& graph) {
  Csr result = sorted_rows(graph.rows(), [&](auto take) {
    for_each_entry(graph, [&](std::int32_t i, std::int32_t j) {
      take(i, j);
      take(j, i);
    });
  });
  remove_duplicates(result);
  return result;
}

Csr with_self_loops(const Csr& graph) {
  return sorted_rows(graph.rows(), [&](auto take) {
    for_each_entry(graph, [&](std::int32_t i, std::int32_t j) {
      if (i != j) take(i, j);
    });
    for (std::int32_t i = 0; i < graph.rows(); ++i) take(i, i);
  });
}

// Counting sort by column; rows are taken in order, so they are sorted within a column.
Transposed transposed(const Csr& graph) {
  LOWTIDE_CHECK(graph.rows() <= std::numeric_limits<std::int32_t>::max(), "nodes have 31 bits");
  Transposed result;
  result.rows.columns = graph.rows();
  result.rows.offsets.assign(at(graph.columns) + 1, 0);
  for (const std::int32_t j : graph.indices) ++result.rows.offsets[at(j) + 1];
  std::partial_sum(result.rows.offsets.begin(), result.rows.offsets.end(), result.rows.offsets.begin());
  result.rows.indices.resize(graph.indices.size());
  result.entry.resize(graph.indices.size());
  std::vector<std::int64_t> next(result.rows.offsets.begin(), result.rows.offsets.end() - 1);
  std::int64_t entry = 0;
  for_each_entry(graph, [&](std::int32_t i, std::int32_t j) {
    const std::size_t place = at(next[at(j)]++);
    result.rows.indices[place] = i;
    result.entry[place] = entry++;
  });
  return result;
}

std::vector<std::int64_t> degrees(const Csr& graph) {
  std::vector<std::int64_t> result(at(graph.rows()));
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = graph.offsets[i + 1] - graph.offsets[i];
  return result;
}

std::vector<std::int64_t> column_degrees(const Csr& graph) {
  std::vector<std::int64_t> result(at(graph.columns));
  for (const std::int32_t j : graph.indices) ++result[at(j)];
  return result;
}

std::vector<float> gcn_weights(const Csr& graph) {
  const auto rows = degrees(graph), columns = column_degrees(graph);
  std::vector<float> weights;
  weights.reserve(graph.indices.size());
  for_each_entry(graph, [&](std::int32_t i, std::int32_t j) {
    const double product = static_cast<double>(rows[at(i)]) * static_cast<double>(columns[at(j)]);
    weights.push_back(static_cast<float>(1.0 / std::sqrt(product)));
  });
  return weights;
}

}  // namespace lowtide
