#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "lowtide/base/kept_memory.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/tiles.h"

namespace lowtide::integer {

// A matrix of codes whose scale differs from row to row, as 24-bit integers whose scale differs from column to
// column instead: value ≈ scale[column] · (u - 2²³) + middle[column], within 2⁻²⁵ of the column's range, which is a
// float's own precision. For sums that run down the rows: three limbs of bytes, three sums.
inline constexpr int kLimbs = 3;

class FixedPoint {
 public:
  FixedPoint(const std::uint8_t* code, std::span<const Affine> rows, std::int64_t columns);

  // What counts as 0 of a limb's bytes; limbs have the highest byte first.
  static int centre(int limb) { return limb == 0 ? 128 : 0; }

  // Sums of centred bytes, sixteen columns of each limb.
  using LimbSums = std::array<std::array<std::int32_t, kLanes>, kLimbs>;
  // Sixteen columns from `first` on of the rows of a quad (none: -1), as the tiles read them: `to` has a vector for each
  // limb. What lies beyond the last column is zero. Adds the bytes to `sums`.
  void pack_quad(const std::array<std::int64_t, kQuad>& rows, std::int64_t first, std::uint8_t* to,
                 LimbSums& sums) const;
  // Σ of a column's values, of whose bytes these are the sums.
  double total(std::int64_t column, const LimbSums& sums, std::int64_t terms) const {
    const auto lane = static_cast<std::size_t>(column % kLanes), c = static_cast<std::size_t>(column);
    const double u = 0x1p16 * sums[0][lane] + 0x1p8 * sums[1][lane] + sums[2][lane];
    return scale[c] * u + middle[c] * static_cast<double>(terms);
  }

  KeptVector<double> scale, middle;

 private:
  std::int64_t columns_;
  KeptArray<std::uint32_t> u_;
};

}  // namespace lowtide::integer
