#pragma once

#include <cstdint>

#include "lowtide/nn/dropout_kernels.h"

// What attention does between its products, on a GPU: no torch, for nvcc. `stream` is a cudaStream_t.

namespace lowtide {

// Rows of at most this many positions.
inline constexpr int kMostAttended = 1024;

// Of each row of scores: p = softmax(factor · score + mask) and its dropout, whose noise is that of dropout's kernel.
struct AttendArguments {
  const float* scores = nullptr;  // items × heads × rows × length
  const float* mask = nullptr;    // items × rows × length, with steps of 0 where one serves several
  std::int64_t mask_item = 0, mask_row = 0;
  float factor = 1;
  std::int64_t items = 0, heads = 0, rows = 0;
  int length = 0;
  DropoutNoise dropout;

  float* p = nullptr;        // out
  float* weights = nullptr;  // out: p after dropout; may be p where there is none
  float* min = nullptr;      // out, of each row of weights
  float* range = nullptr;
};
void attend_on_gpu(const AttendArguments& a, void* stream);

// The gradient at the scores, from that at the weights.
struct AttendGradientArguments {
  AttendArguments of;  // without outputs
  const float* p = nullptr;
  const float* gradient = nullptr;  // at the weights
  float* result = nullptr;          // out
};
void attend_gradient_on_gpu(const AttendGradientArguments& a, void* stream);

// The codes of activations of items × length × heads · units as a stack of a matrix for each head of each item: of length ×
// units, or units × length. A range for each row of each matrix.
struct EncodeHeadsArguments {
  const float* x = nullptr;
  std::int64_t items = 0;
  int length = 0, heads = 0, units = 0;
  bool transposed = false;
  DeviceBits bits;               // 8 or fewer
  std::uint8_t* code = nullptr;  // out
  float* scale = nullptr;        // out, a row each
  float* min = nullptr;
};
// x begins at a multiple of sixteen bytes.
inline constexpr int kMostHeadLength = 128;
inline bool can_encode_heads(std::int64_t length, std::int64_t units) {
  return length <= kMostHeadLength && (units == 32 || units == 64 || units == 128);
}
void encode_heads_on_gpu(const EncodeHeadsArguments& a, void* stream);

}  // namespace lowtide
