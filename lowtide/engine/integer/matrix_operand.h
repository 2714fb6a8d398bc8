#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/direct_walk.h"

// The operands of a matrix product: rows of pixels with one tap. The left operand's rows are the pixels, the right one's
// columns the lanes; an operand whose scale changes along the sum becomes 24-bit integers and stands on the right, as in
// fixed_point_input_gradient.cpp.

namespace lowtide::integer {

// One operand of one matrix product: `along` is the dimension that is summed, `across` the other. One of the steps is 1.
struct Side {
  const std::uint8_t* code = nullptr;
  std::int64_t across = 0, across_step = 0, along_step = 0;
  KeptVector<Affine> affine;  // one; or one for each index across, or along
  const Affine& at(std::int64_t i) const {
    return affine[affine.size() == 1 ? 0 : static_cast<std::size_t>(i)];
  }
};

// Where the floats of some rows of sums go.
struct RowOutputs {
  float* y;
  std::int64_t row_step, column_step;
  bool adds;  // to what is there

  RowOutputs from_column(std::int64_t column) const {
    return {y + column * column_step, row_step, column_step, adds};
  }
};

// What turns one row's sums into values, of the left operand: see output_epilogue.h.
struct RowTerms {
  std::int32_t window_sum;  // Σ (q - bias)
  std::int32_t d;           // bias - zero point
  float scale;
  float centred;  // scale · Σ (q - zero point)
  float residual;

  RowTerms(const Affine& a, std::int32_t row_window_sum, std::int64_t terms)
      : window_sum(row_window_sum),
        d(a.code_bias - a.zero_point),
        scale(a.scale),
        centred(static_cast<float>(static_cast<double>(a.scale) *
                                   static_cast<double>(row_window_sum + terms * d))),
        residual(static_cast<float>(a.residual)) {}
};

// The right operand's columns over elements [from, to) along the sum: what the tiles read, and the constants that turn
// sums into values.
class RightOperand {
 public:
  virtual ~RightOperand() = default;
  // `sums`: [row][block.vectors · 16]
  virtual void finish_rows(const VectorBlock& block, const std::int32_t* sums,
                           const std::vector<RowTerms>& rows, const RowOutputs& out) const = 0;

  const std::vector<VectorBlock>& blocks() const { return weights_.blocks; }
  const std::uint8_t* packed(const VectorBlock& block) const { return weights_.of(block); }
  std::int64_t columns() const { return columns_; }
  std::int64_t terms() const { return terms_; }

 protected:
  RightOperand(std::int64_t columns, std::int64_t vectors, std::int64_t terms, bool threes)
      : weights_(vectors, 1, quads_for(terms), threes),
        columns_(columns),
        padded_(static_cast<std::size_t>(vectors_for(columns) * kLanes)),
        terms_(terms) {}

  PackedWeights weights_;
  std::int64_t columns_;
  std::size_t padded_;  // columns, to whole vectors
  std::int64_t terms_;
};

// `terms_scaled`: the scale differs along the sum, and not across.
std::unique_ptr<RightOperand> make_right_operand(const Side& right, bool terms_scaled, std::int64_t from,
                                                 std::int64_t to);

// Rows [first, first + rows) of the left operand, elements [from, to) along, as signed pixels.
void pack_left(const Side& left, std::int64_t first, std::int64_t rows, std::int64_t from, std::int64_t to,
               const PixelLayout& layout, std::int8_t* packed);

}  // namespace lowtide::integer
