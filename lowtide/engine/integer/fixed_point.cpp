#include "lowtide/engine/integer/fixed_point.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "lowtide/base/simd.h"

namespace lowtide::integer {
namespace {

constexpr double kTop = (1 << 24) - 1, kMiddle = 1 << 23;

LOWTIDE_SIMD void widen(const std::uint8_t* code, const Affine& row, std::int64_t columns, double* low,
                        double* high) {
  for (std::int64_t c = 0; c < columns; ++c) {
    const double value =
        static_cast<double>(row.scale) * static_cast<double>(code[c] - row.zero) + row.residual;
    low[c] = value < low[c] ? value : low[c];
    high[c] = value > high[c] ? value : high[c];
  }
}

LOWTIDE_SIMD void round_row(const std::uint8_t* code, const Affine& row, std::int64_t columns,
                            const double* low, const double* inverse, std::uint32_t* u) {
  for (std::int64_t c = 0; c < columns; ++c) {
    const double value =
        static_cast<double>(row.scale) * static_cast<double>(code[c] - row.zero) + row.residual;
    const double steps = (value - low[c]) * inverse[c] + 0.5;
    // Negative only where a NaN is about; the result is NaN then through `middle`.
    u[c] = static_cast<std::uint32_t>(static_cast<std::int32_t>(steps >= 0 && steps < kTop + 1 ? steps : 0));
  }
}

}  // namespace

FixedPoint::FixedPoint(const std::uint8_t* code, std::vector<Affine> rows, std::int64_t columns)
    : scale(static_cast<std::size_t>(columns)),
      middle(scale.size()),
      code_(code),
      rows_(std::move(rows)),
      columns_(columns),
      u_(new std::uint32_t[rows_.size() * scale.size()]) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto count = static_cast<std::int64_t>(rows_.size());
  // Some 100 µs of work for a thread, at a nanosecond an element.
  const std::int64_t rows_a_thread = std::max<std::int64_t>(1, 100'000 / std::max<std::int64_t>(1, columns));
  std::vector<double> low(scale.size(), kInfinity), high(scale.size(), -kInfinity), inverse(scale.size());
  std::mutex joining;  // extremes do not depend on the order
  at::parallel_for(0, count, rows_a_thread, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> least(scale.size(), kInfinity), most(scale.size(), -kInfinity);
    for (std::int64_t row = begin; row < end; ++row) {
      widen(code + row * columns, rows_[static_cast<std::size_t>(row)], columns, least.data(), most.data());
    }
    const std::lock_guard lock(joining);
    for (std::size_t c = 0; c < scale.size(); ++c) {
      low[c] = std::min(low[c], least[c]);
      high[c] = std::max(high[c], most[c]);
    }
  });
  double poison = 0;  // NaN once a row's is: comparisons pass over it
  for (const Affine& row : rows_) poison += row.residual * 0.0 + static_cast<double>(row.scale) * 0.0;
  for (std::size_t c = 0; c < scale.size(); ++c) {
    scale[c] = (high[c] - low[c]) / kTop;
    inverse[c] = scale[c] > 0 ? 1 / scale[c] : 0;
    middle[c] = low[c] + kMiddle * scale[c] + poison;
  }
  at::parallel_for(0, count, rows_a_thread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      round_row(code + row * columns, rows_[static_cast<std::size_t>(row)], columns, low.data(),
                inverse.data(), u_.get() + row * columns);
    }
  });
}

}  // namespace lowtide::integer
