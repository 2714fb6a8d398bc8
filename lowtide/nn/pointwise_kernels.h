#pragma once

#include <cstdint>

// GELU on a GPU: no torch, for nvcc. `stream` is a cudaStream_t.

namespace lowtide {

// y = x Φ(x), and its range.
struct GeluArguments {
  const float* x = nullptr;  // which begins at a multiple of sixteen bytes, as y does
  std::int64_t n = 0;
  float* y = nullptr;
  float* min = nullptr;  // out, one number each
  float* range = nullptr;
  void* scratch = nullptr;  // kRangeScratchBytes (quantizer_kernels.h)
};
void gelu_on_gpu(const GeluArguments& a, void* stream);

}  // namespace lowtide
