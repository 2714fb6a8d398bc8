#pragma once

#include <cstdint>
#include <vector>

namespace lowtide::cuda::bench {

struct Graph {
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> indices;
};

// One row is longer than the others.
Graph drawn_graph(int nodes, double degree, int long_row);

}  // namespace lowtide::cuda::bench
