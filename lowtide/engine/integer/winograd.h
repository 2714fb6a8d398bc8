#pragma once

#include <cstdint>

// Sums under a 3×3 kernel by Winograd's F(4×4, 3×3): a tile of 4×4 outputs reads a window of 6×6 inputs, and when window
// and kernel are transformed, 36 products stand for 144. Done in floats that loses digits; here all numbers are whole and
// the result is exact. With the points 0, 1, -1, 2, -2 and ∞, and the fractions of G multiplied out,
//
//   24² Y = Aᵀ [(G w Gᵀ) ∘ (Bᵀ x B)] A.
//
// Sums are taken modulo 2³². There 9 has an inverse, and 24² = 9 · 64: the right-hand side times 9⁻¹ is 64 Y modulo 2³², and
// a shift by six bits leaves Y modulo 2²⁶. What overflows on the way is of no consequence as long as |Y| < 2²⁵.
//
// Bᵀ x B is at most 100 times the largest code and G w Gᵀ 49 times, so both fit into 16 bits. One instruction multiplies
// and adds pairs of those, where it takes quads of bytes: 18 instructions stand for 36.
//
// A weight gradient is the same with other parts: an error tile of 4×4 is the kernel, G e Gᵀ being at most 225 times its
// codes, and the 3×3 sums over it are the outputs.

namespace lowtide::integer {

inline constexpr int kTile = 4;                    // outputs along each dimension of a tile
inline constexpr int kWindow = 6;                  // inputs that they read
inline constexpr int kPoints = kWindow * kWindow;  // products a tile and pair of channels
inline constexpr int kKernel = 3, kTaps = 9;       // of a 3×3 kernel: along a dimension, and in all
inline constexpr int kPair = 2;                    // numbers of 16 bits that are multiplied and added at once
inline constexpr int kPairVector = 32;             // numbers of 16 bits in a vector

inline constexpr std::int64_t kWinogradLimit = 1 << 25;  // |Y| stays below
inline constexpr std::int64_t kWindowGrowth = 100, kKernelGrowth = 49, kErrorGrowth = 225;
inline constexpr std::int64_t kMostShort = 32'767;

// Points lie so many numbers apart, and a cache line more: steps of powers of two would bring all of them into the same few
// places of the nearest cache.
constexpr std::int64_t point_step(std::int64_t shorts) { return shorts + kPairVector; }
constexpr std::int64_t sum_step(std::int64_t sums) { return sums + kPairVector / 2; }

// The tiles that cover some images' pixels.
struct TileGrid {
  std::int64_t items = 0, rows = 0, cols = 0;  // pixels of an image
  std::int64_t tile_rows = (rows + kTile - 1) / kTile, tile_cols = (cols + kTile - 1) / kTile;

  std::int64_t tiles() const { return items * tile_rows * tile_cols; }
};

// Images of codes, channels last. `outside` is a row of the codes that stand for nothing, for what lies beyond the edges.
struct ImagePixels {
  const std::uint8_t* code = nullptr;
  std::int64_t rows = 0, cols = 0, channels = 0;
  const std::uint8_t* outside = nullptr;

  // Where the size·size pixels from (row, col) of image `item` on stand.
  void locate(std::int64_t item, std::int64_t row, std::int64_t col, int size,
              const std::uint8_t** at) const {
    const std::uint8_t* first = code + ((item * rows + row) * cols + col) * channels;
    const bool inside = row >= 0 && row + size <= rows && col >= 0 && col + size <= cols;
    for (std::int64_t r = 0; r < size; ++r) {
      const bool row_inside = inside || (row + r >= 0 && row + r < rows);
      for (std::int64_t c = 0; c < size; ++c) {
        const bool pixel_inside = inside || (row_inside && col + c >= 0 && col + c < cols);
        at[r * size + c] = pixel_inside ? first + (r * cols + c) * channels : outside;
      }
    }
  }
};

// The innermost loops, one set for each instruction set, as TileKernels. Each transform is of one vector and writes
// its 36 results `step` numbers apart; `centre` is taken off every code.

// sum[row][lane] = Σ_pair dot(weight[pair][lane], input at row·row_step + pair·pair_step), modulo 2³²
struct PairRows {
  const std::int16_t* input = nullptr;
  std::int64_t row_step = 0, pair_step = 0;  // in numbers
  const std::int16_t* weight = nullptr;      // [pair][vectors][16][2]
  std::int64_t pairs = 0, rows = 0;
  std::int32_t* sum = nullptr;  // out: [row][vectors · 16]
};

struct TransformedTiles {
  const std::int32_t* sum = nullptr;  // sixteen lanes of the first point
  std::int64_t step = 0;              // from a point to the next
};

struct WinogradKernels {
  void (*pair_rows)(const PairRows& rows, int vectors);  // 1, 2 or 4
  // Windows of two tiles, sixteen channels from `channel` on: channel by channel the pair of them.
  void (*window_pair)(const std::uint8_t* const* first, const std::uint8_t* const* second,
                      std::int64_t channel, std::int16_t centre, std::int16_t* to, std::int64_t step);
  // Errors of two tiles, likewise.
  void (*error_pair)(const std::uint8_t* const* first, const std::uint8_t* const* second,
                     std::int64_t channel, std::int16_t centre, std::int16_t* to, std::int64_t step);
  // The window of one tile, 32 channels from `channel` on.
  void (*window)(const std::uint8_t* const* pixels, std::int64_t channel, std::int16_t centre,
                 std::int16_t* to, std::int64_t step);
  // The kernel of 32 channels, or of sixteen pairs: value[ky·3 + kx][32].
  void (*kernel)(const std::int16_t* value, std::int16_t* to, std::int64_t step);
  // to[ky·3 + kx][lane] += the sums of an error's tiles at a kernel's nine taps, `to_step` apart
  void (*add_kernel_sums)(const TransformedTiles& tiles, std::int32_t* to, std::int64_t to_step);
  // to[row][col][lane] = the sixteen outputs of a tile, or += them
  void (*tile_sums)(const TransformedTiles& tile, bool adds, std::int32_t* to, std::int64_t row_step,
                    std::int64_t col_step);
};

}  // namespace lowtide::integer
