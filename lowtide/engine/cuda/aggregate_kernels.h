#pragma once

#include <cstdint>

// Sums of rows that a sparse matrix names, on a GPU. No torch. `stream` is a cudaStream_t.

namespace lowtide::cuda {

struct AggregateArguments {
  const std::int64_t* offsets = nullptr;  // of the rows' entries
  const std::int32_t* indices = nullptr;  // an entry each
  const float* weights = nullptr;         // entries × heads, or nothing: 1
  const float* row_factor = nullptr;      // likewise
  const float* column_factor = nullptr;   // likewise
  const float* values = nullptr;          // features as floats,
  const std::uint8_t* codes = nullptr;    // or as codes
  const float* scale = nullptr;           // of codes: one, or one a row
  const float* offset = nullptr;
  bool by_row = false;
  std::int64_t rows = 0;
  int width = 0, heads = 1;  // of the features
  float* y = nullptr;        // rows × width
};
void aggregate(const AggregateArguments& a, void* stream);

}  // namespace lowtide::cuda
