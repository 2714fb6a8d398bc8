#pragma once

#include <cstddef>
#include <cstdint>

#include "lowtide/engine/integer/plan.h"

// Codes lie in memory as the quantiser wrote them: unsigned bytes, channels last. These lay them out as the tiles
// read them.

namespace lowtide::integer {

// Some channels of one image, or of a band of its rows.
struct ImageCodes {
  const std::uint8_t* code = nullptr;  // of the first channel wanted, at row 0, column 0
  std::int64_t channels = 0;           // wanted
  std::int64_t pixel_step = 0;         // bytes from a pixel to the next: all channels of the image
  std::int32_t code_bias = 0;          // taken off each code where signed bytes are made
};

// n codes minus their bias.
void subtract_bias(const std::uint8_t* from, std::int64_t n, std::int32_t bias, std::int8_t* to);

// Four times `blocks` rows of codes as quads, [quad][row][4]; `quads` is a multiple of four. Row i has bias[i · bias_step].
void transpose_quad_rows(const std::uint8_t* from, std::int64_t row_step, std::int64_t blocks,
                         std::int64_t quads, const std::uint8_t* bias, std::int64_t bias_step,
                         std::int8_t* to, std::int64_t quad_step);

// A quad of up to four rows for up to sixteen columns, [16 columns][4 rows]; missing ones are zeros.
void interleave_rows(const std::uint8_t* from, std::int64_t row_step, std::int64_t rows, std::int64_t columns,
                     std::uint8_t* packed);

// Packed rows [first, first + rows) of the plan as signed bytes, [quad][row][column][4], zeros in the margin and
// in channels beyond the last. A quad has rows · plan.pitch() pixels.
void pack_quads(const Plan& plan, const ImageCodes& image, std::int64_t first, std::int64_t rows,
                std::int8_t* packed);

// The same rows as [row][column][channel], the channels filled up to whole quads: what a matrix unit reads.
void pack_pixels(const Plan& plan, const ImageCodes& image, std::int64_t first, std::int64_t rows,
                 std::int8_t* packed);

// Every packed row as signed bytes, channel by channel: [channel][row][split][width], zeros in the margin.
struct PlanarLayout {
  std::int64_t rows = 0;   // packed rows
  std::int64_t split = 1;  // columns are split by their remainder
  std::int64_t width = 0;  // bytes of one split

  // Room for `quads` whole quads of output columns after the farthest tap.
  PlanarLayout(const Plan& plan, std::int64_t kernel_cols, std::int64_t quads);
  std::int64_t pitch() const { return split * width; }
  std::int64_t plane_bytes() const { return rows * pitch(); }
  std::int64_t column(std::int64_t col) const { return col % split * width + col / split; }
};
void pack_planes(const Plan& plan, const PlanarLayout& layout, const ImageCodes& image, std::int8_t* packed);

// Quads of neighbouring columns, [row][quad][vector][16 channels][4 columns], unsigned, zeros beyond the last
// column and the last channel. `row_bytes` = quads · vectors · 64.
void pack_columns(const ImageCodes& image, std::int64_t rows, std::int64_t cols, std::int64_t vectors,
                  std::uint8_t* packed);

// window_sum[pixel] = Σ_tap sums[tap + pixel]
void window_sums(const std::int32_t* sums, const std::int32_t* taps, std::size_t count, std::int64_t pixels,
                 std::int32_t* window_sum);

}  // namespace lowtide::integer
