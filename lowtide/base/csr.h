#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lowtide {

// Compressed sparse rows: the columns of row i are indices[offsets[i]] .. indices[offsets[i + 1]] − 1. Of a
// graph, rows and columns are nodes, and row i holds the nodes that an edge leads to from i.
struct Csr {
  std::int64_t columns = 0;
  std::vector<std::int64_t> offsets = {0};  // rows + 1 of them
  std::vector<std::int32_t> indices;

  std::int64_t rows() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t entries() const { return static_cast<std::int64_t>(indices.size()); }
  std::span<const std::int32_t> row(std::int64_t i) const {
    const auto begin = static_cast<std::size_t>(offsets[static_cast<std::size_t>(i)]);
    const auto end = static_cast<std::size_t>(offsets[static_cast<std::size_t>(i) + 1]);
    return std::span(indices).subspan(begin, end - begin);
  }
};

struct Edge {
  std::int32_t source = 0;
  std::int32_t target = 0;

  bool operator==(const Edge&) const = default;
};

// Edges between `nodes` nodes, rows sorted; an edge that is listed twice is there twice.
Csr csr_from_edges(std::int64_t nodes, std::span<const Edge> edges);

// The functions below take and give graphs with sorted rows.
Csr undirected(const Csr& graph);       // every edge in both directions, and once
Csr with_self_loops(const Csr& graph);  // one a node: those that are there are not doubled

// Columns become rows, sorted as well. `entry[k]` says which entry of the original entry k was.
struct Transposed {
  Csr rows;
  std::vector<std::int64_t> entry;
};
Transposed transposed(const Csr& graph);

std::vector<std::int64_t> degrees(const Csr& graph);         // entries of each row
std::vector<std::int64_t> column_degrees(const Csr& graph);  // entries of each column

// The weight of every entry in the symmetric normalisation of Kipf & Welling, "Semi-supervised classification
// with graph convolutional networks", 2017, eq. 2: D^(−1/2) A D^(−1/2), where A has self loops already. For a
// directed graph d is the degree of the row on the left, of the column on the right.
std::vector<float> gcn_weights(const Csr& graph);

}  // namespace lowtide
