#include "lowtide/engine/integer/pack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lowtide/base/lanes.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/tiles.h"

namespace lowtide::integer {
namespace {

using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
using Words4 = std::uint32_t __attribute__((vector_size(16)));

template <typename T>
[[gnu::always_inline]] inline T load(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <typename T>
[[gnu::always_inline]] inline void store(void* p, const T& value) {
  std::memcpy(p, &value, sizeof value);
}

[[gnu::always_inline]] inline Bytes16 interleave_low(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
[[gnu::always_inline]] inline Bytes16 interleave_high(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// Four rows of four quads each, transposed: to[quad · quad_step .. + 16) = the quad of each row.
[[gnu::always_inline]] inline void transpose_quads(const std::uint8_t* from, std::int64_t row_step,
                                                   const Bytes16* bias, std::int8_t* to,
                                                   std::int64_t quad_step) {
  const auto centred = [&](std::int64_t row) __attribute__((always_inline)) {
    return __builtin_bit_cast(Words4, load<Bytes16>(from + row * row_step) - bias[row]);
  };
  const Words4 a = centred(0), b = centred(1), c = centred(2), d = centred(3);
  const Words4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
               ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Words4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
               cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  store(to, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
  store(to + quad_step, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
  store(to + 2 * quad_step, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
  store(to + 3 * quad_step, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

std::uint32_t quad_of(const std::uint8_t* code, std::int64_t channels, std::int32_t bias) {
  std::uint32_t quad = 0;
  for (std::int64_t c = 0; c < std::min<std::int64_t>(channels, kQuad); ++c) {
    quad |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(code[c] - bias)) << (8 * c);
  }
  return quad;
}

// Source columns that fall into the packed image.
struct Span {
  std::int64_t first, last;
};

Span columns_within(const Plan& plan) {
  return {std::max<std::int64_t>(0, -plan.left), std::min(plan.source_cols, plan.packed_cols - plan.left)};
}

// Columns of one remainder: where they start in the source and in the packed row, and how many there are.
struct SplitColumns {
  std::int64_t source, packed, count;
};

SplitColumns split_columns(const Span& span, std::int64_t left, std::int64_t split, std::int64_t width,
                           std::int64_t remainder) {
  const std::int64_t first = span.first + (remainder - (span.first + left) % split + split) % split;
  const std::int64_t count = first < span.last ? (span.last - first + split - 1) / split : 0;
  return {first, remainder * width + (first + left) / split, count};
}

void pack_quad_row(const Plan& plan, const ImageCodes& image, const std::uint8_t* row, std::int64_t quad_step,
                   std::int8_t* packed) {
  const std::int64_t quads = (image.channels + kQuad - 1) / kQuad;
  const std::int64_t step = plan.column_split * image.pixel_step;
  for (std::int64_t remainder = 0; remainder < plan.column_split; ++remainder) {
    const SplitColumns columns =
        split_columns(columns_within(plan), plan.left, plan.column_split, plan.split_width(), remainder);
    const std::uint8_t* from = row + columns.source * image.pixel_step;
    std::int8_t* to = packed + columns.packed * kQuad;
    std::int64_t col = 0;
    if (image.channels % (4 * kQuad) == 0) {
      col = columns.count / 4 * 4;
      const auto bias = static_cast<std::uint8_t>(image.code_bias);
      transpose_quad_rows(from, step, columns.count / 4, quads, &bias, /*bias_step=*/0, to, quad_step);
    }
    for (; col < columns.count; ++col) {
      for (std::int64_t quad = 0; quad < quads; ++quad) {
        store(to + col * kQuad + quad * quad_step,
              quad_of(from + col * step + quad * kQuad, image.channels - quad * kQuad, image.code_bias));
      }
    }
  }
}

// Pixels of which `channels` codes are wanted, `step` bytes apart.
struct PixelRun {
  const std::uint8_t* code;
  std::int64_t step, count, channels;
};

// The codes minus their bias, where the number of channels is a multiple of sixteen.
LOWTIDE_SIMD void subtract_bias_of_sixteens(const PixelRun& run, std::int32_t bias, std::int8_t* to) {
  const PixelRun pixels = run;
  const Bytes16 biases = Bytes16{} + static_cast<std::uint8_t>(bias);
  for (std::int64_t pixel = 0; pixel < pixels.count; ++pixel, to += pixels.channels) {
    const std::uint8_t* from = pixels.code + pixel * pixels.step;
    for (std::int64_t c = 0; c < pixels.channels; c += kLanes)
      store(to + c, load<Bytes16>(from + c) - biases);
  }
}

// The codes minus their bias, a pixel's channels up to whole quads.
void subtract_bias_of_pixels(const PixelRun& run, std::int32_t bias, std::int8_t* to) {
  const std::int64_t quads = (run.channels + kQuad - 1) / kQuad;
  if (run.step == run.channels && run.channels % kQuad == 0) {
    subtract_bias(run.code, run.count * run.channels, bias, to);
  } else if (run.channels % kLanes == 0) {
    subtract_bias_of_sixteens(run, bias, to);
  } else {
    for (std::int64_t pixel = 0; pixel < run.count; ++pixel) {
      const std::uint8_t* from = run.code + pixel * run.step;
      for (std::int64_t quad = 0; quad < quads; ++quad, to += kQuad) {
        store(to, quad_of(from + quad * kQuad, run.channels - quad * kQuad, bias));
      }
    }
  }
}

// Sixteen rows of sixteen bytes become columns: four rounds of the perfect shuffle.
[[gnu::always_inline]] inline void transpose_bytes(std::array<Bytes16, 16>& rows) {
  for (int round = 0; round < 4; ++round) {
    std::array<Bytes16, 16> next;
    for (std::size_t i = 0; i < 8; ++i) {
      next[2 * i] = interleave_low(rows[i], rows[i + 8]);
      next[2 * i + 1] = interleave_high(rows[i], rows[i + 8]);
    }
    rows = next;
  }
}

// `kCols` pixels, every channel: to[channel · plane_bytes .. + kCols) = the channel of each pixel.
template <std::size_t kCols>
LOWTIDE_SIMD void transpose_columns(const std::uint8_t* from, std::int64_t step, std::int64_t channels,
                                    std::int32_t bias, std::int8_t* to, std::int64_t plane_bytes) {
  const Bytes16 biases = Bytes16{} + static_cast<std::uint8_t>(bias);
  for (std::int64_t channel = 0; channel < channels; channel += kLanes) {
    std::array<Bytes16, 16> block{};
    for (std::size_t i = 0; i < kCols; ++i) {
      block[i] = load<Bytes16>(from + static_cast<std::int64_t>(i) * step + channel) - biases;
    }
    transpose_bytes(block);
    for (std::size_t i = 0; i < 16; ++i) {
      std::memcpy(to + (channel + static_cast<std::int64_t>(i)) * plane_bytes, &block[i], kCols);
    }
  }
}

void pack_plane_row(const Plan& plan, const PlanarLayout& layout, const ImageCodes& image,
                    const std::uint8_t* row, std::int8_t* packed) {
  const std::int64_t step = layout.split * image.pixel_step;
  for (std::int64_t remainder = 0; remainder < layout.split; ++remainder) {
    const SplitColumns columns =
        split_columns(columns_within(plan), plan.left, layout.split, layout.width, remainder);
    const std::uint8_t* from = row + columns.source * image.pixel_step;
    std::int8_t* to = packed + columns.packed;
    std::int64_t col = 0;
    const auto whole_blocks = [&]<std::int64_t kCols>() {
      for (; col + kCols <= columns.count; col += kCols) {
        transpose_columns<kCols>(from + col * step, step, image.channels, image.code_bias, to + col,
                                 layout.plane_bytes());
      }
    };
    if (image.channels % kLanes == 0) {
      whole_blocks.operator()<16>();
      whole_blocks.operator()<8>();
      whole_blocks.operator()<4>();
    }
    for (; col < columns.count; ++col) {
      for (std::int64_t channel = 0; channel < image.channels; ++channel) {
        to[channel * layout.plane_bytes() + col] =
            static_cast<std::int8_t>(from[col * step + channel] - image.code_bias);
      }
    }
  }
}

}  // namespace

LOWTIDE_SIMD void subtract_bias(const std::uint8_t* from, std::int64_t n, std::int32_t bias,
                                std::int8_t* to) {
  const auto off = static_cast<std::uint8_t>(bias);
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<std::int8_t>(from[i] - off);
}

LOWTIDE_SIMD void transpose_quad_rows(const std::uint8_t* from, std::int64_t row_step, std::int64_t blocks,
                                      std::int64_t quads, const std::uint8_t* bias, std::int64_t bias_step,
                                      std::int8_t* to, std::int64_t quad_step) {
  for (std::int64_t block = 0; block < blocks; ++block, from += 4 * row_step, to += 4 * kQuad) {
    Bytes16 biases[4];
    for (std::int64_t i = 0; i < 4; ++i) biases[i] = Bytes16{} + bias[(4 * block + i) * bias_step];
    for (std::int64_t quad = 0; quad < quads; quad += 4) {
      transpose_quads(from + quad * kQuad, row_step, biases, to + quad * quad_step, quad_step);
    }
  }
}

void interleave_rows(const std::uint8_t* from, std::int64_t row_step, std::int64_t rows, std::int64_t columns,
                     std::uint8_t* packed) {
  std::array<Bytes16, 4> row{};
  for (std::int64_t i = 0; i < std::min<std::int64_t>(rows, kQuad); ++i) {
    if (columns >= kLanes) {
      row[static_cast<std::size_t>(i)] = load<Bytes16>(from + i * row_step);
    } else {
      std::memcpy(&row[static_cast<std::size_t>(i)], from + i * row_step, static_cast<std::size_t>(columns));
    }
  }
  const Bytes16 even_low = interleave_low(row[0], row[2]), odd_low = interleave_low(row[1], row[3]);
  const Bytes16 even_high = interleave_high(row[0], row[2]), odd_high = interleave_high(row[1], row[3]);
  store(packed, interleave_low(even_low, odd_low));
  store(packed + 16, interleave_high(even_low, odd_low));
  store(packed + 32, interleave_low(even_high, odd_high));
  store(packed + 48, interleave_high(even_high, odd_high));
}

void pack_quads(const Plan& plan, const ImageCodes& image, std::int64_t first, std::int64_t rows,
                std::int8_t* packed) {
  const std::int64_t quads = (image.channels + kQuad - 1) / kQuad;
  const std::int64_t row_bytes = plan.pitch() * kQuad, quad_step = rows * row_bytes;
  std::memset(packed, 0, static_cast<std::size_t>(quads * quad_step));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t source = first + row - plan.top;
    if (source < 0 || source >= plan.source_rows) continue;
    pack_quad_row(plan, image, image.code + source * plan.source_cols * image.pixel_step, quad_step,
                  packed + row * row_bytes);
  }
}

void pack_pixels(const Plan& plan, const ImageCodes& image, std::int64_t first, std::int64_t rows,
                 std::int8_t* packed) {
  const std::int64_t pixel = (image.channels + kQuad - 1) / kQuad * kQuad, row_bytes = plan.pitch() * pixel;
  std::memset(packed, 0, static_cast<std::size_t>(rows * row_bytes));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t source = first + row - plan.top;
    if (source < 0 || source >= plan.source_rows) continue;
    const std::uint8_t* from = image.code + source * plan.source_cols * image.pixel_step;
    for (std::int64_t remainder = 0; remainder < plan.column_split; ++remainder) {
      const SplitColumns columns =
          split_columns(columns_within(plan), plan.left, plan.column_split, plan.split_width(), remainder);
      subtract_bias_of_pixels({from + columns.source * image.pixel_step, plan.column_split * image.pixel_step,
                               columns.count, image.channels},
                              image.code_bias, packed + row * row_bytes + columns.packed * pixel);
    }
  }
}

PlanarLayout::PlanarLayout(const Plan& plan, std::int64_t kernel_cols, std::int64_t quads)
    : rows(plan.packed_rows),
      split(plan.column_split),
      width(std::max(plan.split_width(), (kernel_cols - 1) / plan.column_split + kQuad * quads)) {}

void pack_planes(const Plan& plan, const PlanarLayout& layout, const ImageCodes& image, std::int8_t* packed) {
  std::memset(packed, 0, static_cast<std::size_t>(image.channels * layout.plane_bytes()));
  for (std::int64_t row = 0; row < layout.rows; ++row) {
    const std::int64_t source = row - plan.top;
    if (source < 0 || source >= plan.source_rows) continue;
    pack_plane_row(plan, layout, image, image.code + source * plan.source_cols * image.pixel_step,
                   packed + row * layout.pitch());
  }
}

void pack_columns(const ImageCodes& image, std::int64_t rows, std::int64_t cols, std::int64_t vectors,
                  std::uint8_t* packed) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; col += kQuad) {
      const std::uint8_t* from = image.code + (row * cols + col) * image.pixel_step;
      for (std::int64_t vector = 0; vector < vectors; ++vector, packed += kVectorBytes) {
        interleave_rows(from + vector * kLanes, image.pixel_step, cols - col,
                        image.channels - vector * kLanes, packed);
      }
    }
  }
}

LOWTIDE_SIMD void window_sums(const std::int32_t* sums, const std::int32_t* taps, std::size_t count,
                              std::int64_t pixels, std::int32_t* window_sum) {
  const std::int64_t whole = pixels / kSimdLanes * kSimdLanes;
  for (std::int64_t pixel = 0; pixel < whole; pixel += kSimdLanes) {
    Ints total{};
    for (std::size_t tap = 0; tap < count; ++tap) {
      total += LOWTIDE_LOAD(Ints, sums + taps[tap] + pixel);
    }
    LOWTIDE_STORE(window_sum + pixel, total);
  }
  std::fill(window_sum + whole, window_sum + pixels, 0);
  for (std::size_t tap = 0; tap < count; ++tap) {
    const std::int32_t* from = sums + taps[tap];
    for (std::int64_t pixel = whole; pixel < pixels; ++pixel) window_sum[pixel] += from[pixel];
  }
}

}  // namespace lowtide::integer
