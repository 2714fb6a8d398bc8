#pragma once

#include <memory>

#include "lowtide/base/csr.h"
#include "lowtide/engine/engine.h"

namespace lowtide {

// The entries of a sparse matrix one by one, for attention, which has a weight of its own for each.
struct Entries {
  at::Tensor row, column;        // int64, of each entry
  at::Tensor transposed;         // int64: which entry each of the transposed matrix is
  SparseRows by_row, by_column;  // matrices that sum over the entries of every row, of every column
};

// The edges along which one layer of a graph network gathers: a row for each node that it computes, which names the nodes
// that it gathers from. The first columns are the rows' own nodes.
struct Gather {
  SparseRows forward;
  SparseRows backward;  // transposed, for gradients; empty where none are wanted
  at::Tensor mean;      // 1 / degree of a row; 0 without neighbours
  // degree^(-1/2) of a row, of a column: the symmetric normalisation of Kipf & Welling 2017. As DGL has it, a degree of 0
  // counts as 1.
  at::Tensor row_norm, column_norm;
  Entries entries;  // empty unless wanted

  std::int64_t rows() const { return forward.rows(); }
};

struct GatherWants {
  bool gradients = true;
  bool entries = false;
};
std::shared_ptr<const Gather> make_gather(const Csr& edges, const at::Device& device,
                                          const GatherWants& wants);

// Features of nodes most of which are zero: rows with their entries' values in `weights`.
struct SparseFeatures {
  SparseRows rows, columns;  // the matrix and its transposed
  at::Tensor entry;          // of `columns` in `rows`
  at::Tensor row_of;         // int64, the row of each entry
  at::Tensor min, range;     // of each row, its zeros included
};
std::shared_ptr<const SparseFeatures> make_sparse_features(const Csr& pattern,
                                                           const std::vector<float>& values,
                                                           const at::Device& device);

// The same entries with other values.
std::shared_ptr<const SparseFeatures> with_values(const SparseFeatures& features, const at::Tensor& values);

// What a graph network is given for its nodes: dense or sparse.
struct NodeInput {
  at::Tensor dense;
  std::shared_ptr<const SparseFeatures> sparse;
  std::shared_ptr<const SparseFeatures> sparse_own;  // of a sampled block: the first rows, which it computes

  std::int64_t rows() const { return sparse ? sparse->rows.rows() : dense.size(0); }
};

}  // namespace lowtide
