#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/base/csr.h"

namespace lowtide {

// A row of numbers a node: dense, or only those that are not zero, as the file had them.
struct NodeFeatures {
  std::int64_t columns = 0;
  std::vector<float> dense;   // nodes × columns, row by row; empty where they are sparse
  Csr sparse;                 // which columns a row has, and
  std::vector<float> values;  // their numbers

  bool is_sparse() const { return dense.empty(); }
};

// Every column gets mean 0 and deviation 1 over all nodes; one that is constant gets 0. Dense features alone:
// sparse ones would not stay sparse, and are a UserError.
void standardise(NodeFeatures& features);

// The magnitudes of every row sum to 1; a row of zeros stays.
void normalise_rows(NodeFeatures& features);

// The rows of these nodes, one after the other, dense: nodes.size() × columns numbers.
void gather_rows(const NodeFeatures& features, std::span<const std::int32_t> nodes, float* out);

}  // namespace lowtide
