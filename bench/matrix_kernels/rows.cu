#include <cmath>

#include "bench/gpu_checks.h"
#include "bench/matrix_kernels/matrix.h"
#include "bench/matrix_kernels/subjects.h"
#include "lowtide/nn/row_kernels.h"

namespace lowtide::cuda::bench {

namespace {

void check_rows(int rows, int columns) {
  const auto n = static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  const auto x = floats(n), factor = floats(static_cast<std::size_t>(rows), 0.3f, 1),
             bias = floats(static_cast<std::size_t>(columns));
  Buffer<float> y(n), sum(static_cast<std::size_t>(columns)),
      partial(static_cast<std::size_t>(sum_parts(rows) * columns)), decoded(n);
  const auto xs = x->host(), fs = factor->host(), bs = bias->host();
  std::vector<double> ys(n), sums(static_cast<std::size_t>(columns)), ds(n);
  if (columns % 4 == 0 && columns <= kMostRoundedColumns) {
    round_rows_on_gpu(
        {.x = *x, .factor = *factor, .bias = *bias, .bits = 8, .y = y, .rows = rows, .columns = columns},
        stream);
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
      const auto first = xs.begin() + static_cast<std::ptrdiff_t>(r) * columns;
      const auto [least, most] = std::minmax_element(first, first + columns);
      const float scale = scale_of(*most - *least, 255);
      for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c) {
        const double code =
            std::nearbyint(std::min((first[static_cast<std::ptrdiff_t>(c)] - *least) / scale, 255.0f));
        ys[r * static_cast<std::size_t>(columns) + c] =
            (code * static_cast<double>(scale) + static_cast<double>(*least)) * static_cast<double>(fs[r]) +
            static_cast<double>(bs[c]);
      }
    }
    report("rows rounded, " + std::to_string(rows) + " x " + std::to_string(columns), distance(y.host(), ys),
           1e-6);
  }
  for (const bool by_row : {false, true}) {
    const Matrix q(rows, columns, 8, by_row, 0.01f);
    SumCodesArguments a{.code = q.view.code,
                        .scale = q.view.scale,
                        .offset = q.view.offset,
                        .by_row = by_row,
                        .factor = *factor,
                        .y = decoded,
                        .sum = sum,
                        .partial = partial,
                        .rows = rows,
                        .columns = columns};
    sum_codes_on_gpu(a, stream);
    const auto c = q.code->host();
    const auto s = q.scale->host(), o = q.offset->host();
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t row = i / static_cast<std::size_t>(columns), at = by_row ? row : 0;
      const double value =
          static_cast<double>(c[i]) * static_cast<double>(s[at]) + static_cast<double>(o[at]);
      ds[i] = value * static_cast<double>(fs[row]);
      sums[i % static_cast<std::size_t>(columns)] += value;
    }
    report("codes summed, " + std::to_string(rows) + " x " + std::to_string(columns),
           distance(sum.host(), sums), 2e-6);
    report("  decoded", distance(decoded.host(), ds), 1e-6);
  }
}

}  // namespace

void check_rows() {
  check_rows(700, 40);
  check_rows(333, 512);
  check_rows(100, 1000);
  check_rows(65, 37);
}

}  // namespace lowtide::cuda::bench
