#include "lowtide/engine/integer/matrix_pack.h"

#include <algorithm>
#include <cstring>

#include "lowtide/base/lanes.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/pack.h"

namespace lowtide::integer {
namespace {

std::uint8_t bias_of(const MatrixCodes& codes, std::int64_t row) { return codes.bias[row * codes.bias_step]; }

// Quads [first, last) of rows [first_row, rows), code by code.
void pack_rest(const MatrixCodes& codes, const PixelLayout& layout, std::int64_t first_row,
               std::int64_t first, std::int64_t last, std::int8_t* packed) {
  for (std::int64_t row = first_row; row < codes.rows; ++row) {
    for (std::int64_t quad = first; quad < last; ++quad) {
      std::int8_t* to = packed + row * layout.pixel_step + quad * layout.quad_step;
      for (std::int64_t term = quad * kQuad; term < (quad + 1) * kQuad; ++term) {
        const std::uint8_t* code = codes.code + row * codes.row_step + term * codes.term_step;
        *to++ = term < codes.terms ? static_cast<std::int8_t>(*code - bias_of(codes, row)) : std::int8_t{0};
      }
    }
  }
}

// A row's terms are neighbours, and so are its quads.
void copy_rows(const MatrixCodes& codes, const PixelLayout& layout, std::int8_t* packed) {
  const std::int64_t whole = codes.terms / kQuad;
  for (std::int64_t row = 0; row < codes.rows; ++row) {
    subtract_bias(codes.code + row * codes.row_step, whole * kQuad, bias_of(codes, row),
                  packed + row * layout.pixel_step);
  }
  pack_rest(codes, layout, 0, whole, (codes.terms + kQuad - 1) / kQuad, packed);
}

// A row's terms are neighbours; its quads lie apart, and rows of a quad are neighbours.
void transpose_rows(const MatrixCodes& codes, const PixelLayout& layout, std::int8_t* packed) {
  constexpr std::int64_t kBlock = 4;
  const std::int64_t quads = (codes.terms + kQuad - 1) / kQuad;
  const std::int64_t blocks = codes.rows / kBlock, whole = codes.terms / kQuad / kBlock * kBlock;
  transpose_quad_rows(codes.code, codes.row_step, blocks, whole, codes.bias, codes.bias_step, packed,
                      layout.quad_step);
  MatrixCodes done = codes;
  done.rows = blocks * kBlock;
  pack_rest(done, layout, 0, whole, quads, packed);
  pack_rest(codes, layout, done.rows, 0, quads, packed);
}

// Rows of a term are neighbours.
LOWTIDE_SIMD void interleave_terms(const MatrixCodes& codes, const PixelLayout& layout, std::int8_t* packed) {
  for (std::int64_t first = 0; first < codes.rows; first += kLanes) {
    const std::int64_t lanes = std::min<std::int64_t>(kLanes, codes.rows - first);
    alignas(kVectorBytes) std::uint8_t bias[kVectorBytes] = {}, quad_of[kVectorBytes];
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      std::memset(bias + lane * kQuad, codes.bias[(first + lane) * codes.bias_step], kQuad);
    }
    std::int8_t* to = packed + first * layout.pixel_step;
    const std::uint8_t* from = codes.code + first;
    for (std::int64_t term = 0; term < codes.terms; term += kQuad, to += layout.quad_step) {
      const std::int64_t terms = std::min<std::int64_t>(kQuad, codes.terms - term);
      interleave_rows(from + term * codes.term_step, codes.term_step, terms, lanes, quad_of);
      for (int i = 0; i < kVectorBytes; ++i) quad_of[i] = static_cast<std::uint8_t>(quad_of[i] - bias[i]);
      if (terms < kQuad) {
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
          std::memset(quad_of + lane * kQuad + terms, 0, static_cast<std::size_t>(kQuad - terms));
        }
      }
      if (layout.pixel_step == kQuad) {
        std::memcpy(to, quad_of, static_cast<std::size_t>(lanes * kQuad));
      } else {
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
          std::memcpy(to + lane * layout.pixel_step, quad_of + lane * kQuad, kQuad);
        }
      }
    }
  }
}

}  // namespace

void pack_matrix(const MatrixCodes& codes, const PixelLayout& layout, std::int8_t* packed) {
  if (codes.term_step != 1) {
    interleave_terms(codes, layout, packed);
  } else if (layout.quad_step == kQuad) {
    copy_rows(codes, layout, packed);
  } else {
    transpose_rows(codes, layout, packed);
  }
}

LOWTIDE_SIMD void sum_quads(const std::uint8_t* packed, std::int64_t quads, std::int64_t quad_step,
                            std::int32_t* sums) {
  Words total{};
  for (std::int64_t quad = 0; quad < quads; ++quad) {
    const Words codes = LOWTIDE_LOAD(Words, packed + quad * quad_step);
    total += (codes & 0xff) + (codes >> 8 & 0xff) + (codes >> 16 & 0xff) + (codes >> 24);
  }
  LOWTIDE_STORE(sums, total);
}

}  // namespace lowtide::integer
