#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lowtide/base/csr.h"
#include "lowtide/data/graph/node_features.h"
#include "lowtide/data/graph/node_split.h"

namespace lowtide {

// Nodes with features and classes, and the edges between them as the files list them: undirected() and
// with_self_loops() make of them what a network wants.
struct Graph {
  std::string place;
  std::int64_t nodes = 0;
  Csr edges;
  NodeFeatures features;
  std::vector<std::int32_t> labels;  // 0 .. classes − 1
  int classes = 0;
  NodeSplit split;  // empty where the data has none: draw one

  std::string describe() const;  // one line
};

// Formats, as their users have them on disk:
//   ogb       raw/edge.csv.gz, node-feat.csv.gz, node-label.csv.gz, num-node-list.csv.gz, num-edge-list.csv.gz;
//             split/NAME/{train,valid,test}.csv.gz; each also plain (OGBN-Arxiv, OGBN-Products)
//   npz       a file of CSR arrays adj_{data,indices,indptr,shape}, attr_{…}, and labels (Coauthor, Amazon)
//   musae     NAME_edges.csv, NAME_features.json, NAME_target.csv (MUSAE)
//   citation  NAME.content, NAME.cites (Cora, CiteSeer as LINQS gives them)
// UserError for all that is missing or damaged.
Graph open_graph(const std::string& format, const std::filesystem::path& path);

}  // namespace lowtide
