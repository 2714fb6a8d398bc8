#pragma once

#include <cstdint>
#include <memory>

#include "bench/matrix_kernels/drawn.h"
#include "lowtide/engine/cuda/byte_product.h"

namespace lowtide::cuda::bench {

// Codes and how they are to be read.
struct Matrix {
  std::unique_ptr<Buffer<std::uint8_t>> code;
  std::unique_ptr<Buffer<float>> scale, offset;
  MatrixCodes view;

  Matrix(int rows, int columns, int bits, bool by_row, float spread) {
    const std::size_t ranges = by_row ? static_cast<std::size_t>(rows) : 1;
    code = codes(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns), bits);
    scale = floats(ranges, 0.1f * spread, spread);
    offset = floats(ranges, 3 * spread, -100 * spread * (1 << bits) / 256);
    view.code = *code;
    view.scale = *scale;
    view.offset = *offset;
    view.by_row = by_row;
    view.bits = bits;
    view.rows = rows;
    view.columns = columns;
  }
};

}  // namespace lowtide::cuda::bench
