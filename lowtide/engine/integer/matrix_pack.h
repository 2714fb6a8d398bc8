#pragma once

#include <cstdint>

#include "lowtide/engine/integer/tiles.h"

// The codes of a matrix product's operands, laid out as the tiles read them: in quads along the sum.

namespace lowtide::integer {

// Codes of a matrix whose rows are those of the left operand, or whose rows are the columns of the right one. One of the two
// steps is 1.
struct MatrixCodes {
  const std::uint8_t* code = nullptr;
  std::int64_t rows = 0, row_step = 0;
  std::int64_t terms = 0, term_step = 0;
  const std::uint8_t* bias = nullptr;  // taken off each code of row i: bias[i · bias_step]
  std::int64_t bias_step = 0;
};

// Term t of row i goes to packed[i · pixel_step + t / 4 · quad_step + t % 4]; terms beyond the last are zeros.
void pack_matrix(const MatrixCodes& codes, const PixelLayout& layout, std::int8_t* packed);

// Of each of sixteen neighbours in every quad, `quad_step` bytes apart: the sum of all its unsigned bytes.
void sum_quads(const std::uint8_t* packed, std::int64_t quads, std::int64_t quad_step, std::int32_t* sums);

}  // namespace lowtide::integer
