#pragma once

#include "lowtide/engine/cuda/device.cuh"

namespace lowtide::cuda {

// Division by a number that is known on the host: a multiplication and a shift (Granlund and Montgomery, "Division by
// invariant integers using multiplication", PLDI 1994, figure 4.1), for numerators below 2^31.
struct Divisor {
  unsigned divisor = 1, factor = 0, shift = 0;

  Divisor() = default;
  explicit Divisor(int by) : divisor(static_cast<unsigned>(by)) {
    while ((1ull << shift) < divisor) ++shift;
    factor = static_cast<unsigned>(((1ull << 32) * ((1ull << shift) - divisor)) / divisor + 1);
  }
  __device__ unsigned quotient(unsigned n) const { return (__umulhi(n, factor) + n) >> shift; }
  __device__ int of(int n) const { return static_cast<int>(quotient(static_cast<unsigned>(n))); }
};

// A pixel's number as image, row and column.
struct PixelDivisor {
  Divisor area, cols;

  PixelDivisor() = default;
  PixelDivisor(int rows, int of_cols) : area(rows * of_cols), cols(of_cols) {}
  __device__ void split(int pixel, int& image, int& row, int& col) const {
    const unsigned number = static_cast<unsigned>(pixel), i = area.quotient(number),
                   at = number - i * area.divisor;
    const unsigned r = cols.quotient(at);
    image = static_cast<int>(i);
    row = static_cast<int>(r);
    col = static_cast<int>(at - r * cols.divisor);
  }
};

}  // namespace lowtide::cuda
