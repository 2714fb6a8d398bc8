#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lowtide/engine/integer/affine.h"

namespace lowtide::integer {

// A matrix of codes whose scale differs from row to row, as 24-bit integers whose scale differs from column to
// column instead: value ≈ scale[column] · (u - 2²³) + middle[column], within 2⁻²⁵ of the column's range, which is a
// float's own precision. For sums that run down the rows: three planes of bytes, three sums.
inline constexpr int kPlanes = 3;

class FixedPoint {
 public:
  FixedPoint(const std::uint8_t* code, std::vector<Affine> rows, std::int64_t columns);

  const std::uint32_t* row(std::int64_t row) const { return u_.get() + row * columns_; }
  // Byte `plane` of u, the highest first; of the highest, 128 counts as 0.
  static std::uint8_t byte(std::uint32_t u, int plane) {
    return static_cast<std::uint8_t>(u >> (16 - 8 * plane));
  }
  static int centre(int plane) { return plane == 0 ? 128 : 0; }
  // The exact value.
  double value(std::int64_t row, std::int64_t column) const {
    return rows_[static_cast<std::size_t>(row)].value(code_[row * columns_ + column]);
  }

  std::vector<double> scale, middle;

 private:
  const std::uint8_t* code_;
  std::vector<Affine> rows_;
  std::int64_t columns_;
  std::unique_ptr<std::uint32_t[]> u_;  // not cleared first
};

}  // namespace lowtide::integer
