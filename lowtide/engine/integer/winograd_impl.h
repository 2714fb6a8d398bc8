#pragma once

// The loops of winograd.h, written once over vectors of the compiler. Included, as tiles_impl.h is, by one source file
// for each instruction set, in an unnamed namespace.
//
// Pairs:: has     Sum     sixteen 32-bit sums: zero(), store(p)
//                 Vector  sixteen pairs of 16-bit numbers: load(p)
//                 Pair    one pair, the same for every lane: broadcast(p)
//                 add_dot(Sum&, Vector, Pair)
//                 load_codes(first, second, Shorts&): sixteen bytes from each, as pairs
//                 load_codes(p, Shorts&): 32 bytes
//                 kSums   how many Sums the registers hold besides what the loop needs

#include <cstring>

#include "lowtide/engine/integer/tiles.h"
#include "lowtide/engine/integer/winograd.h"

namespace lowtide::integer {
namespace {

using Shorts = std::int16_t __attribute__((vector_size(64)));
using Words = std::uint32_t __attribute__((vector_size(64)));  // unsigned: these sums wrap
using Ints = std::int32_t __attribute__((vector_size(64)));

template <typename Vector>
inline void load_vector(const void* from, Vector& to) {
  std::memcpy(&to, from, sizeof(Vector));
}

template <typename Vector>
inline void store_vector(void* to, const Vector& from) {
  std::memcpy(to, &from, sizeof(Vector));
}

// Bᵀ d
inline void window_points(const Shorts* d, Shorts* t) {
  const Shorts d1 = d[1], d2 = d[2], d3 = d[3], d4 = d[4];
  const Shorts even = d4 - (d2 << 2), odd = d3 - (d1 << 2), near = d4 - d2, far = (d3 - d1) << 1;
  t[0] = even + ((d[0] << 2) - d2);
  t[1] = even + odd;
  t[2] = even - odd;
  t[3] = near + far;
  t[4] = near - far;
  t[5] = d[5] - odd - (d3 << 2);
}

// G w for a kernel's three values, or for the four of an error
template <int kSize>
inline void kernel_points(const Shorts* w, Shorts* t) {
  Shorts odd = w[1], odd2 = w[1];
  if constexpr (kSize == kTile) {
    odd += w[3];
    odd2 += w[3] << 2;
  }
  odd2 <<= 1;
  const Shorts even = w[0] + w[2], even2 = w[0] + (w[2] << 2);
  t[0] = w[0];
  t[1] = even + odd;
  t[2] = even - odd;
  t[3] = even2 + odd2;
  t[4] = even2 - odd2;
  t[5] = w[kSize - 1];
}

// Both dimensions: load(pixel, Shorts&) for each of the kSize · kSize pixels. Unrolled, as restore() is: what stands at an
// index that is known can stay in a register.
template <int kSize, void (*kPointsOf)(const Shorts*, Shorts*), typename Load>
inline void transform(const Load& load, std::int16_t* to, std::int64_t step) {
  Shorts rows[kWindow][kSize];  // transformed down the columns
#pragma GCC unroll 6
  for (int col = 0; col < kSize; ++col) {
    Shorts value[kSize], point[kWindow];
    for (int row = 0; row < kSize; ++row) load(row * kSize + col, value[row]);
    kPointsOf(value, point);
    for (int row = 0; row < kWindow; ++row) rows[row][col] = point[row];
  }
#pragma GCC unroll 6
  for (int row = 0; row < kWindow; ++row) {
    Shorts point[kWindow];
    kPointsOf(rows[row], point);
    for (int col = 0; col < kWindow; ++col) store_vector(to + (row * kWindow + col) * step, point[col]);
  }
}

// Of numbers that are all c, a window's transform is 36 c at point (1, 1) and 0 at all others: Bᵀ makes (0, -6 c, 0, 0, 0, 0)
// of six. So a centre is taken off there, and not off every pixel.
void recentre_window(std::int16_t centre, std::int16_t* to, std::int64_t step) {
  constexpr int kPoint = kWindow + 1, kTimes = 36;
  Shorts point;
  load_vector(to + kPoint * step, point);
  store_vector(to + kPoint * step, point - static_cast<std::int16_t>(kTimes * centre));
}

template <typename Pairs>
void transform_window_pair(const std::uint8_t* const* first, const std::uint8_t* const* second,
                           std::int64_t channel, std::int16_t centre, std::int16_t* to, std::int64_t step) {
  transform<kWindow, window_points>(
      [&](int pixel, Shorts& value) {
        Pairs::load_codes(first[pixel] + channel, second[pixel] + channel, value);
      },
      to, step);
  recentre_window(centre, to, step);
}

template <typename Pairs>
void transform_window(const std::uint8_t* const* pixels, std::int64_t channel, std::int16_t centre,
                      std::int16_t* to, std::int64_t step) {
  transform<kWindow, window_points>(
      [&](int pixel, Shorts& value) { Pairs::load_codes(pixels[pixel] + channel, value); }, to, step);
  recentre_window(centre, to, step);
}

template <typename Pairs>
void transform_error_pair(const std::uint8_t* const* first, const std::uint8_t* const* second,
                          std::int64_t channel, std::int16_t centre, std::int16_t* to, std::int64_t step) {
  const Shorts centres = Shorts{} + centre;
  transform<kTile, kernel_points<kTile>>(
      [&](int pixel, Shorts& value) {
        Pairs::load_codes(first[pixel] + channel, second[pixel] + channel, value);
        value -= centres;
      },
      to, step);
}

void transform_kernel(const std::int16_t* value, std::int16_t* to, std::int64_t step) {
  transform<kKernel, kernel_points<kKernel>>(
      [&](int tap, Shorts& values) { load_vector(value + tap * kPairVector, values); }, to, step);
}

// 24² Y modulo 2³² to Y
inline void divide_exactly(Words& y) {
  constexpr std::uint32_t kInverseOf9 = 954'437'177;
  static_assert(static_cast<std::uint32_t>(9ULL * kInverseOf9) == 1);
  y *= kInverseOf9;
  const Ints shifted = __builtin_bit_cast(Ints, y) >> 6;
  y = __builtin_bit_cast(Words, shifted);
}

// 24 Aᵀ m for the three outputs of a weight gradient, or for the four of a tile
template <int kSize>
inline void outputs_of(const Words* m, Words* y) {
  const Words near_sum = m[1] + m[2], near_difference = m[1] - m[2];
  const Words far_sum = m[3] + m[4], far_difference = m[3] - m[4];
  y[0] = m[0] * 6 - (near_sum << 2) + far_sum;
  y[1] = (far_difference << 1) - (near_difference << 2);
  y[2] = (far_sum - near_sum) << 2;
  if constexpr (kSize == kTile) y[3] = (far_difference << 3) - (near_difference << 2);
  y[kSize - 1] += m[5] * 24;
}

// Both dimensions: take(row, column, sums) each of the kSize · kSize results.
template <int kSize, typename Take>
inline void restore(const TransformedTiles& tiles, const Take& take) {
  Words rows[kSize][kWindow];
#pragma GCC unroll 6
  for (int col = 0; col < kWindow; ++col) {
    Words m[kWindow], y[kSize];
    for (int row = 0; row < kWindow; ++row)
      load_vector(tiles.sum + (row * kWindow + col) * tiles.step, m[row]);
    outputs_of<kSize>(m, y);
    for (int row = 0; row < kSize; ++row) rows[row][col] = y[row];
  }
#pragma GCC unroll 4
  for (int row = 0; row < kSize; ++row) {
    Words y[kSize];
    outputs_of<kSize>(rows[row], y);
    for (int col = 0; col < kSize; ++col) {
      divide_exactly(y[col]);
      take(row, col, y[col]);
    }
  }
}

void add_kernel_sums(const TransformedTiles& tiles, std::int32_t* to, std::int64_t to_step) {
  restore<kKernel>(tiles, [&](int row, int col, const Words& sum) {
    std::int32_t* at = to + (row * kKernel + col) * to_step;
    Words total;
    load_vector(at, total);
    store_vector(at, total + sum);
  });
}

void tile_sums(const TransformedTiles& tile, bool adds, std::int32_t* to, std::int64_t row_step,
               std::int64_t col_step) {
  restore<kTile>(tile, [&](int row, int col, const Words& sum) {
    std::int32_t* at = to + row * row_step + col * col_step;
    Words total = {};
    if (adds) load_vector(at, total);
    store_vector(at, total + sum);
  });
}

template <typename Pairs, int kRows, int kVectors>
void pair_rows_at(const PairRows& r, std::int64_t first) {
  typename Pairs::Sum sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[row][v] = Pairs::zero();
  }
  const std::int16_t* weight = r.weight;
  const std::int16_t* input = r.input + first * r.row_step;
  for (std::int64_t pair = 0; pair < r.pairs; ++pair) {
    typename Pairs::Vector w[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) w[v] = Pairs::load(weight + kPairVector * v);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const typename Pairs::Pair x = Pairs::broadcast(input + row * r.row_step);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) Pairs::add_dot(sum[row][v], w[v], x);
    }
    input += r.pair_step;
    weight += kPairVector * kVectors;
  }
  std::int32_t* out = r.sum + first * kVectors * kLanes;
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Pairs::store(out + (row * kVectors + v) * kLanes, sum[row][v]);
  }
}

// Blocks of kRows rows, then what is left in halves of that.
template <typename Pairs, int kRows, int kVectors>
void pair_rows_from(const PairRows& r, std::int64_t row) {
  for (; row + kRows <= r.rows; row += kRows) pair_rows_at<Pairs, kRows, kVectors>(r, row);
  if constexpr (kRows > 1) pair_rows_from<Pairs, kRows / 2, kVectors>(r, row);
}

template <typename Pairs, int kVectors>
void pair_rows_of(const PairRows& r) {
  constexpr int kFit = rows_at_once(Pairs::kSums / kVectors);
  pair_rows_from < Pairs, kFit<2 ? 2 : kFit, kVectors>(r, 0);
}

template <typename Pairs>
void pair_rows(const PairRows& r, int vectors) {
  if (vectors == 1) return pair_rows_of<Pairs, 1>(r);
  if (vectors == 2) return pair_rows_of<Pairs, 2>(r);
  pair_rows_of<Pairs, 4>(r);
}

template <typename Pairs>
constexpr WinogradKernels kWinograd{pair_rows<Pairs>,
                                    transform_window_pair<Pairs>,
                                    transform_error_pair<Pairs>,
                                    transform_window<Pairs>,
                                    transform_kernel,
                                    add_kernel_sums,
                                    tile_sums};

}  // namespace
}  // namespace lowtide::integer
