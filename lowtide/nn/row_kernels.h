#pragma once

#include <cstdint>

#include "lowtide/quant/quantizer_kernels.h"

// Passes over matrices on a GPU that do at once what would otherwise be several: no torch, for nvcc. `stream` is a cudaStream_t.

namespace lowtide {

// Every row of x rounded to nearest with a range of its own, times its factor, plus a bias: codes · (scale · factor) + min ·
// factor + bias. Columns are a multiple of four.
struct RoundRowsArguments {
  const float* x = nullptr;
  const float* factor = nullptr;  // a row each, or nothing
  const float* bias = nullptr;    // a column each, or nothing
  DeviceBits bits;                // 8 or fewer
  float* y = nullptr;
  std::int64_t rows = 0;
  int columns = 0;
};
inline constexpr int kMostRoundedColumns = 4096;
void round_rows_on_gpu(const RoundRowsArguments& a, void* stream);

// Values of codes summed over rows, in an order that only the matrix's size decides. Where y is given, it becomes each row's
// values times its factor.
struct SumCodesArguments {
  const std::uint8_t* code = nullptr;
  const float* scale = nullptr;  // one, or one a row
  const float* offset = nullptr;
  bool by_row = false;
  const float* factor = nullptr;  // a row each, or nothing
  float* y = nullptr;             // or nothing
  float* sum = nullptr;           // a column each
  float* partial = nullptr;       // sum_parts(rows) × columns
  std::int64_t rows = 0;
  int columns = 0;
};
inline int sum_parts(std::int64_t rows) {
  constexpr std::int64_t kRows = 64, kMost = 264;
  return static_cast<int>(rows < kRows ? 1 : rows / kRows < kMost ? rows / kRows : kMost);
}
void sum_codes_on_gpu(const SumCodesArguments& a, void* stream);

// The sum of the parts, in their order, in double.
void join_parts_on_gpu(const float* partial, int parts, int columns, float* sum, void* stream);

}  // namespace lowtide
