#pragma once

#include "lowtide/base/random.h"  // LOWTIDE_HOST_DEVICE

// How the CUDA engine's kernels are cut: by shapes alone, never by what the GPU has, so that every GPU adds in the same way.

namespace lowtide::cuda {

// Throws std::runtime_error where the last launch was refused: on a GPU that the kernels were not compiled for, say.
void check_launch(const char* kernel);

// Rows of a product from which on a block takes 128 of them: that leaves some 500 blocks, four for a multiprocessor of an
// H200. Fewer rows are taken by 64.
inline constexpr long long kManyRows = 65'536;

// Columns that a block of a product computes, and to a multiple of which weights are packed.
LOWTIDE_HOST_DEVICE inline int forward_columns(int outputs) {
  return outputs <= 16 ? 16 : outputs <= 32 ? 32 : 64;
}

// Tiles of 16 rows and of 8 columns that a warp of such a product computes. Few rows are shared out by columns too, until there
// are two blocks for a multiprocessor: their rows are gathered once for each.
struct ProductCut {
  int row_tiles, col_tiles;

  ProductCut(int rows, int columns) {
    const auto blocks = [&](int by_row, int by_col) {
      return static_cast<long long>((rows + by_row - 1) / by_row) * ((columns + by_col - 1) / by_col);
    };
    const int most = forward_columns(columns);
    row_tiles = static_cast<long long>(rows) * ((columns + most - 1) / most) >= kManyRows ? 2 : 1;
    col_tiles = most / 8;
    constexpr long long kEnoughBlocks = 256;
    while (col_tiles > 2 && blocks(64 * row_tiles, 8 * col_tiles) < kEnoughBlocks) col_tiles /= 2;
  }
};

}  // namespace lowtide::cuda
