#pragma once

#include <cstdint>

#include "lowtide/quant/quantizer_kernels.h"

// Byte codes as operands of products of halves, and what turns such a product into that of the values. No torch.
//
// Halves hold codes less the middle one: exact, and sums of their products are exact in a float below 2^24. Where a scale runs
// along the sum it must be inside: then halves hold the values themselves, as two limbs that together have 22 digits.
// `stream` is a cudaStream_t.

namespace lowtide::cuda {

// A stack of matrices of codes, whose rows lie one after the other.
struct MatrixCodes {
  const std::uint8_t* code = nullptr;
  const float* scale = nullptr;  // one, or one a row
  const float* offset = nullptr;
  bool by_row = false;
  DeviceBits bits;
  int matrices = 1, rows = 0, columns = 0;
};

// One side of a product, by the index that the result has of it (matrices × that): an operand's value is
// factor · half + middle, and `total` is factor times the sum of its halves. So of a product p of halves the result is
//   f_i f_j p + t_i z_j + z_i (t_j + K z_j).
struct ProductSide {
  float* factor = nullptr;
  float* middle = nullptr;
  float* total = nullptr;
};

// Halves in rows of `stride` numbers, which lie in memory as the codes do.
struct HalfMatrix {
  void* high = nullptr;
  void* low = nullptr;  // of values in two limbs: what the first leaves, times kLowLimb
  int stride = 0;
  ProductSide side;
};
inline constexpr float kLowLimb = 2048;

// Summed along rows; scales by row, or one.
void halves_by_rows(const MatrixCodes& codes, const HalfMatrix& to, void* stream);

// Summed along columns; one scale. `work` has room for column_work_bytes().
void halves_by_columns(const MatrixCodes& codes, const HalfMatrix& to, void* work, void* stream);

// Summed along columns, with scales by row, that is inside the sum: `codes` in two limbs. Where the other operand has such
// scales as well (`other`), they are made part of these limbs, and that operand is `bare_halves`.
void value_limbs(const MatrixCodes& codes, const MatrixCodes* other, const HalfMatrix& to, void* work,
                 void* stream);
void bare_halves(const MatrixCodes& codes, const HalfMatrix& to, void* stream);

std::int64_t column_work_bytes(const MatrixCodes& codes);

// The products of halves in `y` (matrices × rows × columns, each a sum of `depth`) become those of values.
struct FinishArguments {
  float* y = nullptr;
  std::int64_t matrices = 1;
  int rows = 0, columns = 0, depth = 0;
  ProductSide left, right;
};
void finish_product(const FinishArguments& a, void* stream);

}  // namespace lowtide::cuda
