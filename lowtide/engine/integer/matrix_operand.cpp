#include "lowtide/engine/integer/matrix_operand.h"

#include <array>
#include <span>

#include "lowtide/base/lanes.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/fixed_point.h"
#include "lowtide/engine/integer/tuning.h"

namespace lowtide::integer {
namespace {

template <typename Pack>
void pack_blocks(const std::vector<VectorBlock>& blocks, std::int64_t block_bytes, const Pack& pack) {
  const auto count = static_cast<std::int64_t>(blocks.size());
  at::parallel_for(0, count,
                   std::max<std::int64_t>(1, kPackedBytesPerThread / std::max<std::int64_t>(1, block_bytes)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) pack(blocks[static_cast<std::size_t>(i)]);
                   });
}

// A lane each for sixteen columns of a right operand with one scale a column: y = Σ (a.scale (qa - za) + ea) · b.
struct ColumnConstants {
  const std::int32_t *zero_point, *sum;   // zb, Σ (qb - zb)
  const float *scale, *residual, *value;  // sb, eb, Σ b
};

LOWTIDE_SIMD void finish_columns(const std::int32_t* sums, const RowTerms& row, const ColumnConstants& c,
                                 std::int64_t lanes, const RowOutput& out) {
  // Unsigned, because it wraps on the way; never in the end: kMostTerms.
  const Words whole = LOWTIDE_LOAD(Words, sums) +
                      LOWTIDE_LOAD(Words, c.sum) * static_cast<std::uint32_t>(row.d) -
                      LOWTIDE_LOAD(Words, c.zero_point) * static_cast<std::uint32_t>(row.window_sum);
  const Floats y =
      __builtin_convertvector(__builtin_bit_cast(Ints, whole), Floats) *
          (LOWTIDE_LOAD(Floats, c.scale) * row.scale) +
      (LOWTIDE_LOAD(Floats, c.residual) * row.centred + LOWTIDE_LOAD(Floats, c.value) * row.residual);
  if (out.step == 1 && lanes >= kLanes) {
    LOWTIDE_STORE(out.y, out.adds ? LOWTIDE_LOAD(Floats, out.y) + y : y);
  } else {
    for (std::int64_t lane = 0; lane < std::min<std::int64_t>(lanes, kLanes); ++lane) {
      float& to = out.y[lane * out.step];
      to = out.adds ? to + y[lane] : y[lane];
    }
  }
}

class ScaledColumns final : public RightOperand {
 public:
  ScaledColumns(const Side& right, std::int64_t from, std::int64_t to)
      : RightOperand(right.across, vectors_for(right.across), to - from, /*threes=*/false),
        zero_(padded_),
        sum_(padded_),
        scale_(padded_),
        residual_(padded_),
        value_(padded_) {
    pack_blocks(weights_.blocks, kMostVectors * kLanes * terms_, [&](const VectorBlock& block) {
      for (int v = 0; v < block.vectors; ++v) pack(right, block, v, from);
    });
  }

  void finish_row(const VectorBlock& block, const std::int32_t* sum, const RowTerms& row,
                  const RowOutput& out) const override {
    for (int v = 0; v < block.vectors; ++v) {
      const std::int64_t first = (block.first + v) * kLanes;
      finish_columns(sum + v * kLanes, row,
                     {.zero_point = zero_.data() + first,
                      .sum = sum_.data() + first,
                      .scale = scale_.data() + first,
                      .residual = residual_.data() + first,
                      .value = value_.data() + first},
                     columns_ - first, {out.y + first * out.step, out.step, out.adds});
    }
  }

 private:
  void pack(const Side& right, const VectorBlock& block, int v, std::int64_t from) {
    const std::int64_t first = (block.first + v) * kLanes;
    const std::int64_t lanes = std::min<std::int64_t>(kLanes, columns_ - first);
    std::array<std::int32_t, kLanes> sums{};
    for (std::int64_t quad = 0; quad < quads_for(terms_); ++quad) {
      std::uint8_t* to = weights_.at(block, v, 0, quad);
      const std::int64_t bytes = std::min<std::int64_t>(kQuad, terms_ - quad * kQuad);
      if (bytes < kQuad || lanes < kLanes) std::fill_n(to, kVectorBytes, std::uint8_t{0});
      const std::uint8_t* code =
          right.code + first * right.across_step + (from + quad * kQuad) * right.along_step;
      if (right.along_step == 1) {
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
          for (std::int64_t k = 0; k < bytes; ++k) to[lane * kQuad + k] = code[lane * right.across_step + k];
        }
      } else {
        for (std::int64_t k = 0; k < bytes; ++k) {
          for (std::int64_t lane = 0; lane < lanes; ++lane)
            to[lane * kQuad + k] = code[k * right.along_step + lane];
        }
      }
      for (std::size_t i = 0; i < kVectorBytes; ++i) sums[i / kQuad] += to[i];
    }
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const Affine& b = right.at(first + lane);
      const auto c = static_cast<std::size_t>(first + lane);
      zero_[c] = b.zero_point;
      sum_[c] = static_cast<std::int32_t>(sums[static_cast<std::size_t>(lane)] - terms_ * b.zero_point);
      scale_[c] = b.scale;
      residual_[c] = static_cast<float>(b.residual);
      value_[c] = static_cast<float>(static_cast<double>(b.scale) * sum_[c] +
                                     static_cast<double>(terms_) * b.residual);
    }
  }

  KeptVector<std::int32_t> zero_, sum_;
  KeptVector<float> scale_, residual_, value_;
};

// The same for a right operand in limbs, see fixed_point.h.
struct LimbConstants {
  std::array<const std::int32_t*, kLimbs> sum;  // Σ of each byte, centred
  const float *scale, *middle, *value;          // of u, Σ b
};

LOWTIDE_SIMD void finish_limbs(const std::int32_t* sums, const RowTerms& row, const LimbConstants& c,
                               std::int64_t lanes, const RowOutput& out) {
  const Ints sum0 = LOWTIDE_LOAD(Ints, sums) + LOWTIDE_LOAD(Ints, c.sum[0]) * row.d -
                    FixedPoint::centre(0) * row.window_sum;
  const Ints sum1 = LOWTIDE_LOAD(Ints, sums + kLanes) + LOWTIDE_LOAD(Ints, c.sum[1]) * row.d;
  const Ints sum2 = LOWTIDE_LOAD(Ints, sums + 2 * kLanes) + LOWTIDE_LOAD(Ints, c.sum[2]) * row.d;
  const Floats whole =
      __builtin_convertvector(sum0, Floats) * 0x1p16f +
      (__builtin_convertvector(sum1, Floats) * 0x1p8f + __builtin_convertvector(sum2, Floats));
  const Floats y =
      whole * (LOWTIDE_LOAD(Floats, c.scale) * row.scale) +
      (LOWTIDE_LOAD(Floats, c.middle) * row.centred + LOWTIDE_LOAD(Floats, c.value) * row.residual);
  if (out.step == 1 && lanes >= kLanes) {
    LOWTIDE_STORE(out.y, out.adds ? LOWTIDE_LOAD(Floats, out.y) + y : y);
  } else {
    for (std::int64_t lane = 0; lane < std::min<std::int64_t>(lanes, kLanes); ++lane) {
      float& to = out.y[lane * out.step];
      to = out.adds ? to + y[lane] : y[lane];
    }
  }
}

class ScaledTerms final : public RightOperand {
 public:
  ScaledTerms(const Side& right, std::int64_t from, std::int64_t to)
      : RightOperand(right.across, kLimbs * vectors_for(right.across), to - from, /*threes=*/true),
        scale_(padded_),
        middle_(padded_),
        value_(padded_) {
    for (auto& sums : sum_) sums.resize(padded_);
    const std::span rows =
        std::span(right.affine).subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(terms_));
    const FixedPoint fixed(right.code + from * right.along_step, rows, right.across);
    pack_blocks(weights_.blocks, kLimbs * kLanes * terms_,
                [&](const VectorBlock& block) { pack(fixed, block); });
  }

  void finish_row(const VectorBlock& block, const std::int32_t* sum, const RowTerms& row,
                  const RowOutput& out) const override {
    const std::int64_t first = block.first / kLimbs * kLanes;
    finish_limbs(sum, row,
                 {.sum = {sum_[0].data() + first, sum_[1].data() + first, sum_[2].data() + first},
                  .scale = scale_.data() + first,
                  .middle = middle_.data() + first,
                  .value = value_.data() + first},
                 columns_ - first, {out.y + first * out.step, out.step, out.adds});
  }

 private:
  void pack(const FixedPoint& fixed, const VectorBlock& block) {
    const std::int64_t first = block.first / kLimbs * kLanes;
    FixedPoint::LimbSums sums{};
    for (std::int64_t quad = 0; quad < quads_for(terms_); ++quad) {
      std::array<std::int64_t, kQuad> rows{};
      for (std::int64_t k = 0; k < kQuad; ++k) {
        const std::int64_t row = quad * kQuad + k;
        rows[static_cast<std::size_t>(k)] = row < terms_ ? row : -1;
      }
      fixed.pack_quad(rows, first, weights_.at(block, 0, 0, quad), sums);
    }
    for (std::int64_t column = first; column < std::min<std::int64_t>(first + kLanes, columns_); ++column) {
      const auto c = static_cast<std::size_t>(column), lane = static_cast<std::size_t>(column - first);
      for (std::size_t limb = 0; limb < kLimbs; ++limb) sum_[limb][c] = sums[limb][lane];
      scale_[c] = static_cast<float>(fixed.scale[c]);
      middle_[c] = static_cast<float>(fixed.middle[c]);
      value_[c] = static_cast<float>(fixed.total(column, sums, terms_));
    }
  }

  std::array<KeptVector<std::int32_t>, kLimbs> sum_;
  KeptVector<float> scale_, middle_, value_;
};

}  // namespace

std::unique_ptr<RightOperand> make_right_operand(const Side& right, bool terms_scaled, std::int64_t from,
                                                 std::int64_t to) {
  if (terms_scaled) return std::make_unique<ScaledTerms>(right, from, to);
  return std::make_unique<ScaledColumns>(right, from, to);
}

void pack_left(const Side& left, std::int64_t first, std::int64_t rows, std::int64_t from, std::int64_t to,
               const PixelLayout& layout, std::int8_t* packed) {
  const std::int64_t terms = to - from, whole = terms / kQuad;
  if (terms % kQuad != 0) {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::fill_n(packed + whole * layout.quad_step + row * layout.pixel_step, kQuad, std::int8_t{0});
    }
  }
  const std::uint8_t* code = left.code + first * left.across_step + from * left.along_step;
  if (left.along_step == 1) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int32_t bias = left.at(first + row).code_bias;
      const std::uint8_t* from_row = code + row * left.across_step;
      std::int8_t* to_row = packed + row * layout.pixel_step;
      if (layout.quad_step == kQuad) {
        subtract_bias(from_row, terms, bias, to_row);
        continue;
      }
      for (std::int64_t quad = 0; quad < whole; ++quad) {
        for (std::int64_t k = 0; k < kQuad; ++k)
          to_row[quad * layout.quad_step + k] = static_cast<std::int8_t>(from_row[quad * kQuad + k] - bias);
      }
      for (std::int64_t k = whole * kQuad; k < terms; ++k) {
        to_row[whole * layout.quad_step + k % kQuad] = static_cast<std::int8_t>(from_row[k] - bias);
      }
    }
    return;
  }
  for (std::int64_t k = 0; k < terms; ++k) {
    std::int8_t* to_quad = packed + k / kQuad * layout.quad_step + k % kQuad;
    const std::uint8_t* from_term = code + k * left.along_step;
    for (std::int64_t row = 0; row < rows; ++row) {
      to_quad[row * layout.pixel_step] =
          static_cast<std::int8_t>(from_term[row] - left.at(first + row).code_bias);
    }
  }
}

}  // namespace lowtide::integer
