#pragma once

#include <filesystem>
#include <string>

#include "lowtide/data/graph/graph.h"
#include "lowtide/io/file.h"

namespace lowtide {

// A graph in NumPy's .npz (https://github.com/shchur/gnn-benchmark): CSR arrays adj_data, adj_indices,
// adj_indptr, adj_shape; attr_… for the features; labels. Weights of edges must be 1. Other arrays, such as
// names, are not read.
Graph parse_npz_graph(ByteSpan bytes, const std::string& name);
Graph open_npz_graph(const std::filesystem::path& path);

}  // namespace lowtide
