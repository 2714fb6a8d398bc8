#include "lowtide/engine/integer/matrix_pack.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lowtide::integer {
namespace {

constexpr std::int8_t kUntouched = 77;

// Codes, of which only those of the matrix may be read: behind them the memory ends.
std::vector<std::uint8_t> some_codes(std::int64_t count) {
  std::vector<std::uint8_t> codes;
  for (std::int64_t i = 0; i < count; ++i) codes.push_back(static_cast<std::uint8_t>(i * 151 + i / 7));
  return codes;
}

enum class Order { kRowAfterRow, kTermAfterTerm };

struct Packing {
  std::int64_t rows, terms;
  Order order;
  bool whole_rows;  // a row's quads are neighbours, as a matrix unit reads them
  bool one_bias;
};

std::string name_of(const Packing& p) {
  return std::to_string(p.rows) + " rows, " + std::to_string(p.terms) + " terms, " +
         (p.order == Order::kRowAfterRow ? "row after row" : "term after term") +
         (p.whole_rows ? ", whole rows" : "") + (p.one_bias ? ", one bias" : "");
}

void check(const Packing& p) {
  SCOPED_TRACE(name_of(p));
  const std::int64_t quads = (p.terms + kQuad - 1) / kQuad;
  const std::vector<std::uint8_t> codes = some_codes(p.rows * p.terms), bias = some_codes(p.rows);
  const MatrixCodes matrix{.code = codes.data(),
                           .rows = p.rows,
                           .row_step = p.order == Order::kRowAfterRow ? p.terms : 1,
                           .terms = p.terms,
                           .term_step = p.order == Order::kRowAfterRow ? 1 : p.rows,
                           .bias = bias.data(),
                           .bias_step = p.one_bias ? 0 : 1};
  // A gap behind each quad's rows shows what is written beyond them.
  const PixelLayout layout = p.whole_rows
                                 ? PixelLayout{.pixel_step = quads * kQuad, .quad_step = kQuad}
                                 : PixelLayout{.pixel_step = kQuad, .quad_step = (p.rows + 1) * kQuad};
  std::vector<std::int8_t> packed(static_cast<std::size_t>((p.rows + 1) * quads * kQuad), kUntouched);
  std::vector<std::int8_t> wanted = packed;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    for (std::int64_t term = 0; term < quads * kQuad; ++term) {
      std::int8_t& to = wanted[static_cast<std::size_t>(row * layout.pixel_step +
                                                        term / kQuad * layout.quad_step + term % kQuad)];
      const auto at = static_cast<std::size_t>(row * matrix.row_step + term * matrix.term_step);
      to = term < p.terms
               ? static_cast<std::int8_t>(codes[at] - bias[static_cast<std::size_t>(row * matrix.bias_step)])
               : std::int8_t{0};
    }
  }
  pack_matrix(matrix, layout, packed.data());
  EXPECT_EQ(packed, wanted);
}

TEST(MatrixPack, EveryCodeHasItsPlace) {
  for (const std::int64_t rows : {1, 3, 4, 7, 15, 16, 17, 32, 35}) {
    for (const std::int64_t terms : {1, 3, 4, 5, 15, 16, 17, 19, 32, 66}) {
      for (const Order order : {Order::kRowAfterRow, Order::kTermAfterTerm}) {
        for (const bool whole_rows : {false, true}) {
          for (const bool one_bias : {false, true}) check({rows, terms, order, whole_rows, one_bias});
        }
      }
    }
  }
}

TEST(MatrixPack, SumsOfQuadsAreThoseOfUnsignedBytes) {
  constexpr std::int64_t kQuads = 5, kStep = 2 * kVectorBytes;
  const std::vector<std::uint8_t> packed = some_codes(kQuads * kStep);
  std::vector<std::int32_t> sums(kLanes), wanted(kLanes);
  for (std::int64_t quad = 0; quad < kQuads; ++quad) {
    for (std::int64_t i = 0; i < kVectorBytes; ++i) {
      wanted[static_cast<std::size_t>(i / kQuad)] += packed[static_cast<std::size_t>(quad * kStep + i)];
    }
  }
  sum_quads(packed.data(), kQuads, kStep, sums.data());
  EXPECT_EQ(sums, wanted);
}

}  // namespace
}  // namespace lowtide::integer
