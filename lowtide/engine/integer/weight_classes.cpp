#include "lowtide/engine/integer/weight_classes.h"

#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/direct_walk.h"

namespace lowtide::integer {
namespace {

LOWTIDE_SIMD void add_values(const std::uint8_t* code, const Affine& row, std::int64_t n, double* sum) {
  const double scale = row.scale, residual = row.residual;
  const std::int32_t zero = row.zero_point;
  for (std::int64_t i = 0; i < n; ++i) sum[i] += scale * static_cast<double>(code[i] - zero) + residual;
}

}  // namespace

KeptVector<float> weight_class_values(const Phase& phase, const std::uint8_t* code,
                                      std::span<const Affine> rows, std::int64_t inputs, double factor) {
  const std::int64_t kernel_rows = static_cast<std::int64_t>(phase.row_valid[0].size());
  const std::int64_t kernel_cols = static_cast<std::int64_t>(phase.col_valid[0].size());
  const std::int64_t taps = kernel_rows * kernel_cols, padded = vectors_for(inputs) * kLanes;
  KeptVector<double> sums(static_cast<std::size_t>(taps * inputs));  // Σ_o w
  for (std::size_t o = 0; o < rows.size(); ++o) {
    add_values(code + static_cast<std::int64_t>(o) * taps * inputs, rows[o], taps * inputs, sums.data());
  }
  KeptVector<float> values(phase.classes() * static_cast<std::size_t>(padded));
  float* to = values.data();
  KeptVector<double> sum(static_cast<std::size_t>(inputs));
  for (std::size_t r = 0; r < phase.row_valid.size(); ++r) {
    for (std::size_t c = 0; c < phase.col_valid.size(); ++c, to += padded) {
      std::fill(sum.begin(), sum.end(), 0);
      for (const Tap& tap : phase.taps) {
        if (!phase.valid(tap, r, c)) continue;
        const double* of_tap = sums.data() + (tap.kernel_row * kernel_cols + tap.kernel_col) * inputs;
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += of_tap[i];
      }
      for (std::size_t i = 0; i < sum.size(); ++i) to[i] = static_cast<float>(factor * sum[i]);
    }
  }
  return values;
}

}  // namespace lowtide::integer
