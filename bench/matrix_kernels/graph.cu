#include <random>

#include "bench/gpu_checks.h"
#include "bench/matrix_kernels/graph.h"
#include "bench/matrix_kernels/matrix.h"
#include "bench/matrix_kernels/subjects.h"
#include "lowtide/engine/cuda/aggregate_kernels.h"

namespace lowtide::cuda::bench {

Graph drawn_graph(int nodes, double degree, int long_row) {
  std::mt19937 generator(5);
  std::poisson_distribution<int> of(degree);
  Graph g;
  for (int i = 0; i < nodes; ++i) {
    const int entries = i == nodes / 2 ? long_row : of(generator);
    for (int e = 0; e < entries; ++e)
      g.indices.push_back(static_cast<std::int32_t>(generator() % static_cast<unsigned>(nodes)));
    g.offsets.push_back(static_cast<std::int64_t>(g.indices.size()));
  }
  return g;
}

namespace {

void check_aggregation(int width, int heads, bool coded) {
  constexpr int kNodes = 3000;
  const Graph g = drawn_graph(kNodes, 9, 1500);
  const Buffer<std::int64_t> offsets(g.offsets);
  const Buffer<std::int32_t> indices(g.indices);
  const auto x = floats(static_cast<std::size_t>(kNodes * width)),
             weights = floats(g.indices.size() * static_cast<std::size_t>(heads)), rf = floats(kNodes),
             cf = floats(kNodes);
  const Matrix q(kNodes, width, 8, true, 0.01f);
  Buffer<float> y(static_cast<std::size_t>(kNodes * width));
  AggregateArguments a;
  a.offsets = offsets;
  a.indices = indices;
  a.weights = *weights;
  a.row_factor = *rf;
  a.column_factor = *cf;
  if (coded) {
    a.codes = q.view.code;
    a.scale = q.view.scale;
    a.offset = q.view.offset;
    a.by_row = true;
  } else {
    a.values = *x;
  }
  a.rows = kNodes;
  a.width = width;
  a.heads = heads;
  a.y = y;
  aggregate(a, stream);
  const auto xs = x->host(), ws = weights->host(), rs = rf->host(), cs = cf->host(), ss = q.scale->host(),
             os = q.offset->host();
  const auto codes_of = q.code->host();
  std::vector<double> ys(xs.size());
  for (std::size_t r = 0; r < kNodes; ++r) {
    for (auto e = static_cast<std::size_t>(g.offsets[r]); e < static_cast<std::size_t>(g.offsets[r + 1]);
         ++e) {
      const auto j = static_cast<std::size_t>(g.indices[e]);
      for (std::size_t c = 0; c < static_cast<std::size_t>(width); ++c) {
        const std::size_t at = j * static_cast<std::size_t>(width) + c,
                          head = c / static_cast<std::size_t>(width / heads);
        const double v = coded ? static_cast<double>(codes_of[at]) * static_cast<double>(ss[j]) +
                                     static_cast<double>(os[j])
                               : static_cast<double>(xs[at]);
        ys[r * static_cast<std::size_t>(width) + c] +=
            v * static_cast<double>(ws[e * static_cast<std::size_t>(heads) + head]) *
            static_cast<double>(cs[j]) * static_cast<double>(rs[r]);
      }
    }
  }
  report("sums over neighbours of " + std::to_string(width) + (coded ? " codes, " : " floats, ") +
             std::to_string(heads) + " heads",
         distance(y.host(), ys), 3e-6);
}

}  // namespace

void check_aggregation() {
  for (const bool coded : {false, true}) {
    check_aggregation(512, 1, coded);
    check_aggregation(40, 1, coded);
    check_aggregation(7, 1, coded);
    check_aggregation(96, 8, coded);
  }
}

}  // namespace lowtide::cuda::bench
