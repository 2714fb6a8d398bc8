#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lowtide/base/kept_memory.h"
#include "lowtide/quant/quantized.h"

namespace lowtide::integer {

// A product's int32 sums cannot overflow up to this many terms: with zero points in 0 .. 255 a recentred code
// is within ±255, and 255² · 33,025 = 2,147,450,625 < 2³¹. Longer sums are cut, or left to `simulated`.
inline constexpr std::int64_t kMostTerms = 33'025;

// value = scale · (code - zero_point) + residual: the integer nearest to where 0 lies among the codes, and the part of
// the offset that is left. Sums of recentred codes are about as large as the result, so the result is not a
// small difference of large numbers; and where a range includes 0 the residual is at most half a step.
struct Affine {
  float scale = 0;
  std::int32_t zero_point = 0;
  double residual = 0;
  // Codes minus this are signed bytes: 128 for codes of 8 bits. Narrower codes fit with any bias; theirs is the zero point,
  // which leaves nothing to correct.
  std::int32_t code_bias = 128;

  static Affine of(float scale, float offset) {
    const double at = std::nearbyint(-static_cast<double>(offset) / static_cast<double>(scale));
    // False for NaN, which then stands in the residual and makes the result NaN too.
    const auto zero = at >= 0 && at <= 255 ? static_cast<std::int32_t>(at) : (at > 255 ? 255 : 0);
    return {scale, zero, static_cast<double>(offset) + static_cast<double>(zero) * static_cast<double>(scale),
            128};
  }

  static Affine of(const Quantized& q, std::int64_t row = 0) {
    const std::int64_t i = q.scale.numel() == 1 ? 0 : row;
    Affine result = of(q.scale.data_ptr<float>()[i], q.offset.data_ptr<float>()[i]);
    const std::int32_t top = (1 << q.bits) - 1;
    if (q.bits < kByteBits) {
      if (result.zero_point > top)
        result = {result.scale, top, result.residual + (top - result.zero_point) * double{result.scale}};
      result.code_bias = result.zero_point;
    }
    return result;
  }

  // The farthest that a code of so many bits can lie from the zero point.
  std::int32_t max_deviation(int bits) const {
    return std::max({1, zero_point, (1 << bits) - 1 - zero_point});
  }

  double value(std::uint8_t code) const {
    return static_cast<double>(scale) * static_cast<double>(code - zero_point) + residual;
  }
};

// How `count` rows of codes are to be read, from `first` on: the weights of output channels.
inline KeptVector<Affine> affine_rows(const Quantized& q, std::int64_t first, std::int64_t count) {
  KeptVector<Affine> rows(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = Affine::of(q, first + static_cast<std::int64_t>(i));
  return rows;
}

}  // namespace lowtide::integer
