#include "lowtide/engine/integer/matrix_operand.h"

#include <array>
#include <cstring>
#include <span>

#include "lowtide/base/lanes.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/fixed_point.h"
#include "lowtide/engine/integer/matrix_pack.h"
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

// Up to sixteen columns of a row that do not fill a vector, or lie apart.
void put_columns(const std::array<float, kLanes>& values, std::int64_t columns, const RowOutputs& out,
                 float* to) {
  for (std::int64_t i = 0; i < std::min<std::int64_t>(columns, kLanes); ++i, to += out.column_step) {
    const float value = values[static_cast<std::size_t>(i)];
    *to = out.adds ? *to + value : value;
  }
}

// A lane each for sixteen columns of a right operand with one scale a column: y = Σ (a.scale (qa - za) + ea) · b.
struct ColumnConstants {
  const std::int32_t *zero_point, *sum;   // zb, Σ (qb - zb)
  const float *scale, *residual, *value;  // sb, eb, Σ b
};

// Of sixteen columns: the sums of a row lie `sum_step` from those of the next.
LOWTIDE_SIMD void finish_columns(const std::int32_t* sums, std::int64_t sum_step,
                                 const std::vector<RowTerms>& rows, const ColumnConstants& c,
                                 std::int64_t lanes, const RowOutputs& to) {
  const RowOutputs out = to;
  const Words sum = LOWTIDE_LOAD(Words, c.sum), zero_point = LOWTIDE_LOAD(Words, c.zero_point);
  const Floats scale = LOWTIDE_LOAD(Floats, c.scale), residual = LOWTIDE_LOAD(Floats, c.residual),
               value = LOWTIDE_LOAD(Floats, c.value);
  const bool whole_vectors = out.column_step == 1 && lanes >= kLanes;
  float* row_out = out.y;
  for (const RowTerms& row : rows) {
    // Unsigned, because it wraps on the way; never in the end: kMostTerms.
    const Words whole = LOWTIDE_LOAD(Words, sums) + sum * static_cast<std::uint32_t>(row.d) -
                        zero_point * static_cast<std::uint32_t>(row.window_sum);
    const Floats y = __builtin_convertvector(__builtin_bit_cast(Ints, whole), Floats) * (scale * row.scale) +
                     (residual * row.centred + value * row.residual);
    if (whole_vectors) {
      LOWTIDE_STORE(row_out, out.adds ? LOWTIDE_LOAD(Floats, row_out) + y : y);
    } else {
      std::array<float, kLanes> values;
      LOWTIDE_STORE(values.data(), y);
      put_columns(values, lanes, out, row_out);
    }
    sums += sum_step;
    row_out += out.row_step;
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

  void finish_rows(const VectorBlock& block, const std::int32_t* sums, const std::vector<RowTerms>& rows,
                   const RowOutputs& out) const override {
    for (int v = 0; v < block.vectors; ++v) {
      const std::int64_t first = (block.first + v) * kLanes;
      finish_columns(sums + v * kLanes, block.vectors * kLanes, rows,
                     {.zero_point = zero_.data() + first,
                      .sum = sum_.data() + first,
                      .scale = scale_.data() + first,
                      .residual = residual_.data() + first,
                      .value = value_.data() + first},
                     columns_ - first, out.from_column(first));
    }
  }

 private:
  void pack(const Side& right, const VectorBlock& block, int v, std::int64_t from) {
    const std::int64_t first = (block.first + v) * kLanes, quads = quads_for(terms_);
    const std::int64_t lanes = std::min<std::int64_t>(kLanes, columns_ - first);
    const PixelLayout layout{.quad_step = block.vectors * kVectorBytes};
    std::uint8_t* to = weights_.at(block, v, 0, 0);
    for (std::int64_t quad = 0; lanes < kLanes && quad < quads; ++quad) {
      std::memset(to + quad * layout.quad_step, 0, kVectorBytes);
    }
    constexpr std::uint8_t kNoBias = 0;
    pack_matrix({.code = right.code + first * right.across_step + from * right.along_step,
                 .rows = lanes,
                 .row_step = right.across_step,
                 .terms = terms_,
                 .term_step = right.along_step,
                 .bias = &kNoBias},
                layout, reinterpret_cast<std::int8_t*>(to));
    std::array<std::int32_t, kLanes> sums;
    sum_quads(to, quads, layout.quad_step, sums.data());
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

LOWTIDE_SIMD void finish_limbs(const std::int32_t* sums, const std::vector<RowTerms>& rows,
                               const LimbConstants& c, std::int64_t lanes, const RowOutputs& to) {
  const RowOutputs out = to;
  const Ints of0 = LOWTIDE_LOAD(Ints, c.sum[0]), of1 = LOWTIDE_LOAD(Ints, c.sum[1]),
             of2 = LOWTIDE_LOAD(Ints, c.sum[2]);
  const Floats scale = LOWTIDE_LOAD(Floats, c.scale), middle = LOWTIDE_LOAD(Floats, c.middle),
               value = LOWTIDE_LOAD(Floats, c.value);
  const bool whole_vectors = out.column_step == 1 && lanes >= kLanes;
  float* row_out = out.y;
  for (const RowTerms& row : rows) {
    const Ints sum0 = LOWTIDE_LOAD(Ints, sums) + of0 * row.d - FixedPoint::centre(0) * row.window_sum;
    const Ints sum1 = LOWTIDE_LOAD(Ints, sums + kLanes) + of1 * row.d;
    const Ints sum2 = LOWTIDE_LOAD(Ints, sums + 2 * kLanes) + of2 * row.d;
    const Floats whole =
        __builtin_convertvector(sum0, Floats) * 0x1p16f +
        (__builtin_convertvector(sum1, Floats) * 0x1p8f + __builtin_convertvector(sum2, Floats));
    const Floats y = whole * (scale * row.scale) + (middle * row.centred + value * row.residual);
    if (whole_vectors) {
      LOWTIDE_STORE(row_out, out.adds ? LOWTIDE_LOAD(Floats, row_out) + y : y);
    } else {
      std::array<float, kLanes> values;
      LOWTIDE_STORE(values.data(), y);
      put_columns(values, lanes, out, row_out);
    }
    sums += kLimbs * kLanes;
    row_out += out.row_step;
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

  void finish_rows(const VectorBlock& block, const std::int32_t* sums, const std::vector<RowTerms>& rows,
                   const RowOutputs& out) const override {
    const std::int64_t first = block.first / kLimbs * kLanes;
    finish_limbs(sums, rows,
                 {.sum = {sum_[0].data() + first, sum_[1].data() + first, sum_[2].data() + first},
                  .scale = scale_.data() + first,
                  .middle = middle_.data() + first,
                  .value = value_.data() + first},
                 columns_ - first, out.from_column(first));
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
  std::array<std::uint8_t, kMatrixTileRows> bias;
  for (std::int64_t row = 0; row < rows; ++row) {
    bias[static_cast<std::size_t>(row)] = static_cast<std::uint8_t>(left.at(first + row).code_bias);
  }
  pack_matrix({.code = left.code + first * left.across_step + from * left.along_step,
               .rows = rows,
               .row_step = left.across_step,
               .terms = to - from,
               .term_step = left.along_step,
               .bias = bias.data(),
               .bias_step = 1},
              layout, packed);
}

}  // namespace lowtide::integer
