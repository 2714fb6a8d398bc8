#include "lowtide/engine/integer/fixed_point.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "lowtide/base/lanes.h"
#include "lowtide/base/scratch.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/tuning.h"

namespace lowtide::integer {
namespace {

constexpr double kTop = (1 << 24) - 1, kMiddle = 1 << 23;

LOWTIDE_SIMD void widen(const std::uint8_t* code, const Affine& row, std::int64_t columns, double* low,
                        double* high) {
  for (std::int64_t c = 0; c < columns; ++c) {
    const double value =
        static_cast<double>(row.scale) * static_cast<double>(code[c] - row.zero_point) + row.residual;
    low[c] = value < low[c] ? value : low[c];
    high[c] = value > high[c] ? value : high[c];
  }
}

LOWTIDE_SIMD void round_row(const std::uint8_t* code, const Affine& row, std::int64_t columns,
                            const double* low, const double* inverse, std::uint32_t* u) {
  for (std::int64_t c = 0; c < columns; ++c) {
    const double value =
        static_cast<double>(row.scale) * static_cast<double>(code[c] - row.zero_point) + row.residual;
    const double steps = (value - low[c]) * inverse[c] + 0.5;
    // Negative only where a NaN is about; the result is NaN then through `middle`.
    u[c] = static_cast<std::uint32_t>(static_cast<std::int32_t>(steps >= 0 && steps < kTop + 1 ? steps : 0));
  }
}

// Four rows of sixteen columns: a vector of each limb, and their centred bytes added to its sums.
LOWTIDE_SIMD void pack_rows(const std::array<const std::uint32_t*, kQuad>& rows, std::uint8_t* to,
                            std::int32_t* sums) {
  for (int limb = 0; limb < kLimbs; ++limb, to += kVectorBytes, sums += kLanes) {
    Words packed{}, sum = LOWTIDE_LOAD(Words, sums);
    for (int k = 0; k < kQuad; ++k) {
      const Words byte = LOWTIDE_LOAD(Words, rows[static_cast<std::size_t>(k)]) >> (16 - 8 * limb) & 0xffu;
      packed |= byte << (8 * k);
      sum += byte;
    }
    LOWTIDE_STORE(to, packed);
    LOWTIDE_STORE(sums, sum);
  }
}

}  // namespace

void FixedPoint::pack_quad(const std::array<std::int64_t, kQuad>& rows, std::int64_t first, std::uint8_t* to,
                           LimbSums& sums) const {
  // Zeros, for rows and columns beyond the last.
  alignas(kVectorBytes) std::array<std::array<std::uint32_t, kLanes>, kQuad> padded{};
  std::array<const std::uint32_t*, kQuad> from{};
  std::int32_t whole_rows = 0;
  const std::int64_t lanes = std::min<std::int64_t>(kLanes, columns_ - first);
  for (std::size_t k = 0; k < rows.size(); ++k) {
    from[k] = padded[k].data();
    if (rows[k] < 0) continue;
    ++whole_rows;
    const std::uint32_t* row = u_.get() + rows[k] * columns_ + first;
    if (lanes == kLanes) {
      from[k] = row;
    } else {
      std::copy_n(row, lanes, padded[k].begin());
    }
  }
  pack_rows(from, to, sums[0].data());
  for (std::int32_t& sum : sums[0]) sum -= whole_rows * centre(0);
}

FixedPoint::FixedPoint(const std::uint8_t* code, std::span<const Affine> rows, std::int64_t columns)
    : scale(static_cast<std::size_t>(columns)),
      middle(scale.size()),
      columns_(columns),
      u_(kept_array<std::uint32_t>(static_cast<std::int64_t>(rows.size() * scale.size()))) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t rows_per_thread =
      std::max<std::int64_t>(1, kFixedPointsPerThread / std::max<std::int64_t>(1, columns));
  KeptVector<double> low(scale.size(), kInfinity), high(scale.size(), -kInfinity), inverse(scale.size());
  std::mutex joining;  // extremes do not depend on the order
  at::parallel_for(0, count, rows_per_thread, [&](std::int64_t begin, std::int64_t end) {
    thread_local Scratch<double> memory;
    double *least = memory.at_least(2 * columns), *most = least + columns;
    std::fill_n(least, columns, kInfinity);
    std::fill_n(most, columns, -kInfinity);
    for (std::int64_t row = begin; row < end; ++row) {
      widen(code + row * columns, rows[static_cast<std::size_t>(row)], columns, least, most);
    }
    const std::lock_guard lock(joining);
    for (std::size_t c = 0; c < scale.size(); ++c) {
      low[c] = std::min(low[c], least[c]);
      high[c] = std::max(high[c], most[c]);
    }
  });
  double poison = 0;  // NaN once a row's is: comparisons pass over it
  for (const Affine& row : rows) poison += row.residual * 0.0 + static_cast<double>(row.scale) * 0.0;
  for (std::size_t c = 0; c < scale.size(); ++c) {
    scale[c] = (high[c] - low[c]) / kTop;
    inverse[c] = scale[c] > 0 ? 1 / scale[c] : 0;
    middle[c] = low[c] + kMiddle * scale[c] + poison;
  }
  at::parallel_for(0, count, rows_per_thread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      round_row(code + row * columns, rows[static_cast<std::size_t>(row)], columns, low.data(),
                inverse.data(), u_.get() + row * columns);
    }
  });
}

}  // namespace lowtide::integer
