#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/engine/engine.h"

namespace lowtide::integer {

// A tap is one element of the kernel: its row and column there, and where it reads in the packed image, relative to the
// output pixel.
struct Tap {
  std::int64_t kernel_row = 0, kernel_col = 0;
  std::int64_t row = 0, col = 0;
};

// Outputs that share their taps: all of them in a convolution; in the gradient of a strided one those whose
// row and column leave the same remainders.
struct Phase {
  std::int64_t first_row = 0, first_col = 0;  // output row = first_row + out_row_step · i, likewise columns
  std::int64_t rows = 0, cols = 0;
  std::vector<Tap> taps;
  // Near an edge some taps fall into the padding, which is a true zero and no code. Outputs with the same valid
  // taps are of one class: row_class · col_valid.size() + col_class.
  std::vector<int> row_class, col_class;
  struct Run {
    std::int64_t first = 0, last = 0;
    int of_class = 0;
  };
  std::vector<Run> col_runs;                            // neighbouring columns of one class
  std::vector<std::vector<bool>> row_valid, col_valid;  // by class, then by kernel row or column

  bool valid(const Tap& tap, std::size_t row_of, std::size_t col_of) const {
    return row_valid[row_of][static_cast<std::size_t>(tap.kernel_row)] &&
           col_valid[col_of][static_cast<std::size_t>(tap.kernel_col)];
  }
  std::size_t classes() const { return row_valid.size() * col_valid.size(); }
};

// How the output of a convolution (a sum over the input), or its input gradient (a sum over the error), reads a
// packed image: the source with a margin of zeros, its columns split by their remainder so that neighbours in the
// output are neighbours in memory.
struct Plan {
  std::int64_t source_rows = 0, source_cols = 0;
  std::int64_t top = 0, left = 0;  // margin before the source
  std::int64_t packed_rows = 0, packed_cols = 0;
  std::int64_t column_split = 1;
  std::int64_t row_step = 1;  // packed rows from one output row to the next
  std::int64_t out_rows = 0, out_cols = 0;
  std::int64_t out_row_step = 1, out_col_step = 1;
  std::vector<Phase> phases;

  std::int64_t split_width() const { return (packed_cols + column_split - 1) / column_split; }
  std::int64_t pitch() const { return split_width() * column_split; }  // of a packed row, in pixels
  // Where a packed column lies in its row. An output column u reads column(c) + u for a tap at column c.
  std::int64_t column(std::int64_t col) const {
    return col % column_split * split_width() + col / column_split;
  }
  std::int64_t rows_of_longest_phase() const;
  std::int64_t window_rows() const;  // packed rows that one output row reads, from its first to its last
};

Plan output_plan(const ConvShape& shape);
Plan input_gradient_plan(const ConvShape& shape);

}  // namespace lowtide::integer
