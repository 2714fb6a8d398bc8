#pragma once

#include <cstdint>

#include "lowtide/engine/cuda/matrix.h"

// Products of byte codes as they are, summed in integers by the tensor cores of compute capability 9.0 (`wgmma`). What turns a
// sum of codes into that of values, and a bias, are done before it leaves the registers. No torch. `stream` is a cudaStream_t.

namespace lowtide::cuda {

// Whether this build has these kernels for this GPU.
bool can_multiply_bytes();

// What rows of codes begin at a multiple of.
inline constexpr int kByteRowMultiple = 16;
// Terms of a sum: 255 · 255 · that fits an integer.
inline constexpr int kMostByteTerms = 32768;

struct ByteProductArguments {
  MatrixCodes a;                // rows × terms; a scale for all, or by row
  MatrixCodes b;                // columns × terms; likewise
  const int* b_sums = nullptr;  // of b's rows of codes
  const float* bias = nullptr;  // a number each column, or nothing
  float* y = nullptr;
};
// y = a · bᵀ + bias
void multiply_bytes(const ByteProductArguments& a, void* stream);
void sum_code_rows(const MatrixCodes& codes, int* sums, void* stream);

// Values whose scales lie along the sum, transposed, as integers of one unit in three signed bytes: a float's digits of the
// largest.
inline constexpr int kByteLimbs = 3;
inline constexpr int kLimbRows = 256;  // whose limbs are summed together
LOWTIDE_HOST_DEVICE inline int limb_sum_parts(int terms) { return (terms + kLimbRows - 1) / kLimbRows; }
struct LimbMatrix {
  std::int8_t* limb = nullptr;  // limbs, lowest first, × columns × terms
  int* sum = nullptr;           // limb_sum_parts() × limbs × columns
  float* unit = nullptr;        // one
  int terms = 0, columns = 0;
};
void make_limbs(const MatrixCodes& terms_by_columns, const LimbMatrix& to, void* stream);

struct LimbProductArguments {
  MatrixCodes a;  // rows × terms
  LimbMatrix b;
  float* y = nullptr;  // rows × b.columns
};
void multiply_limbs(const LimbProductArguments& a, void* stream);

}  // namespace lowtide::cuda
