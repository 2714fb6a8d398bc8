#pragma once

// The tiles, written once over the type of a vector. Included by one source file for each instruction set and
// compiled with that set's flags: all of it lies in an unnamed namespace, so that no other file's code can
// come to use instructions that the machine lacks.
//
// Vectors:: has   Sum     sixteen 32-bit sums: zero(), load(p), store(p)
//                 Vector  a vector of 64 unsigned bytes: load(p)
//                 Quad    four signed bytes, the same for every lane: broadcast(p)
//                 add_dot(Sum&, Vector, Quad)
//                 Scaled  sixteen float sums: nothing(), store(p), add_scaled(Scaled&, Sum, float)
//                 kSums   how many Sums the registers hold besides what the loop needs

#include "lowtide/base/fetch.h"
#include "lowtide/engine/integer/tiles.h"

namespace lowtide::integer {
namespace {

// `kPixels` pixels at once use each weight that many times, `kVectors` vectors each quad of the input.
template <typename Vectors, int kPixels, int kVectors>
void dot_pixels(const DotRow& row, std::int64_t first) {
  typename Vectors::Sum sum[kPixels][kVectors];
#pragma GCC unroll 16
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[p][v] = Vectors::zero();
  }
  const std::uint8_t* weight = row.weight;
  for (int tap = 0; tap < row.taps; ++tap) {
    const std::int8_t* input = row.input + row.tap[tap] + kQuad * first;
    for (std::int64_t quad = 0; quad < row.quads; ++quad) {
      typename Vectors::Vector w[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) w[v] = Vectors::load(weight + kVectorBytes * v);
#pragma GCC unroll 16
      for (int p = 0; p < kPixels; ++p) {
        const typename Vectors::Quad x = Vectors::broadcast(input + kQuad * p);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) Vectors::add_dot(sum[p][v], w[v], x);
      }
      input += row.layout.quad_step;
      weight += kVectorBytes * kVectors;
    }
  }
  std::int32_t* out = row.sum + first * kVectors * kLanes;
#pragma GCC unroll 16
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Vectors::store(out + (p * kVectors + v) * kLanes, sum[p][v]);
  }
}

LOWTIDE_FETCHES inline void fetch_pixels(const Prefetch& prefetch, std::int64_t first, std::int64_t pixels) {
  if (prefetch.floats == 0) return;
  for (std::int64_t pixel = first; pixel < first + pixels; ++pixel) {
    fetch<Fetch::kToWrite>(prefetch.write + pixel * prefetch.step, prefetch.floats);
    if (prefetch.read) fetch<Fetch::kToReadLater>(prefetch.read + pixel * prefetch.step, prefetch.floats);
  }
}

// A row's pixels from `first` on in blocks of kPixels, what is left in halves of that: block<kPixels>(first pixel).
template <int kPixels, typename Block>
void in_blocks(std::int64_t first, std::int64_t pixels, const Prefetch& prefetch, const Block& block) {
  for (; first + kPixels <= pixels; first += kPixels) {
    fetch_pixels(prefetch, first, kPixels);
    block.template operator()<kPixels>(first);
  }
  if constexpr (kPixels > 1) in_blocks<kPixels / 2>(first, pixels, prefetch, block);
}

template <typename Vectors, int kVectors>
void dot_row_of(const DotRow& row) {
  constexpr int kFit = rows_at_once(Vectors::kSums / kVectors), kMost = kFit < 2 ? 2 : kFit;
  in_blocks<kMost>(0, row.pixels, row.prefetch, [&]<int kPixels>(std::int64_t first) {
    dot_pixels<Vectors, kPixels, kVectors>(row, first);
  });
}

template <typename Vectors>
void dot_row(const DotRow& row, int vectors) {
  if (vectors == 1) return dot_row_of<Vectors, 1>(row);
  if (vectors == 2) return dot_row_of<Vectors, 2>(row);
  if (vectors == 3) return dot_row_of<Vectors, 3>(row);
  dot_row_of<Vectors, 4>(row);
}

template <typename Vectors, int kPixels, int kVectors>
void scaled_pixels(const ScaledRow& row, std::int64_t first) {
  typename Vectors::Scaled total[kPixels][kVectors];
#pragma GCC unroll 16
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) total[p][v] = Vectors::nothing();
  }
  const std::uint8_t* weight = row.weight;
  const std::int8_t* input = row.input + first;
  for (std::int64_t channel = 0; channel < row.channels; ++channel, input += row.channel_step) {
    typename Vectors::Sum sum[kPixels][kVectors];
#pragma GCC unroll 16
    for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[p][v] = Vectors::zero();
    }
    for (int tap = 0; tap < row.taps; ++tap, weight += kVectorBytes * kVectors) {
      typename Vectors::Vector w[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) w[v] = Vectors::load(weight + kVectorBytes * v);
#pragma GCC unroll 16
      for (int p = 0; p < kPixels; ++p) {
        const typename Vectors::Quad x = Vectors::broadcast(input + row.tap[tap] + p);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) Vectors::add_dot(sum[p][v], w[v], x);
      }
    }
#pragma GCC unroll 16
    for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) Vectors::add_scaled(total[p][v], sum[p][v], row.scale[channel]);
    }
  }
  float* out = row.sum + first * kVectors * kLanes;
#pragma GCC unroll 16
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Vectors::store(out + (p * kVectors + v) * kLanes, total[p][v]);
  }
}

// Twice as many sums are alive here, integers and floats.
template <typename Vectors, int kVectors>
void scaled_row_of(const ScaledRow& row) {
  constexpr int kMost = rows_at_once(Vectors::kSums / (2 * kVectors));
  in_blocks<kMost>(0, row.pixels, row.prefetch, [&]<int kPixels>(std::int64_t first) {
    scaled_pixels<Vectors, kPixels, kVectors>(row, first);
  });
}

template <typename Vectors>
void scaled_row(const ScaledRow& row, int vectors) {
  if (vectors == 1) return scaled_row_of<Vectors, 1>(row);
  scaled_row_of<Vectors, 2>(row);
}

template <typename Vectors, int kStreams, int kOffsets, int kVectors>
void gradient_streams(const GradientTile& tile) {
  typename Vectors::Sum sum[kStreams][kOffsets][kVectors];
  const std::int8_t* stream[kStreams];
#pragma GCC unroll 16
  for (int s = 0; s < kStreams; ++s) {
    stream[s] = tile.stream[s];
#pragma GCC unroll 4
    for (int k = 0; k < kOffsets; ++k) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[s][k][v] = Vectors::zero();
    }
  }
  const std::uint8_t* error = tile.error;
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    for (std::int64_t quad = 0; quad < tile.quads; ++quad) {
      typename Vectors::Vector e[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) e[v] = Vectors::load(error + kVectorBytes * (quad * kVectors + v));
#pragma GCC unroll 16
      for (int s = 0; s < kStreams; ++s) {
#pragma GCC unroll 4
        for (int k = 0; k < kOffsets; ++k) {
          const typename Vectors::Quad x = Vectors::broadcast(stream[s] + kQuad * quad + k);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) Vectors::add_dot(sum[s][k][v], e[v], x);
        }
      }
    }
    error += tile.error_pitch;
#pragma GCC unroll 16
    for (int s = 0; s < kStreams; ++s) stream[s] += tile.pitch;
  }
#pragma GCC unroll 16
  for (int s = 0; s < kStreams; ++s) {
#pragma GCC unroll 4
    for (int k = 0; k < kOffsets; ++k) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Vectors::add_to(tile.sum + ((s * kOffsets + k) * kVectors + v) * kLanes, sum[s][k][v]);
      }
    }
  }
}

// Ten pointers is what the general registers hold beside the loops' own.
template <typename Vectors>
constexpr int streams_at_once(int vectors, int offsets) {
  const int fit = Vectors::kSums / (vectors * offsets);
  return fit < 1 ? 1 : fit > 10 ? 10 : fit;
}

// Finds the instance for a number of streams known only now.
template <typename Vectors, int kStreams, int kOffsets, int kVectors>
void gradient_tile_of(const GradientTile& tile) {
  if (tile.streams == kStreams) return gradient_streams<Vectors, kStreams, kOffsets, kVectors>(tile);
  if constexpr (kStreams > 1) gradient_tile_of<Vectors, kStreams - 1, kOffsets, kVectors>(tile);
}

template <typename Vectors, int kVectors>
void gradient_tile_of(const GradientTile& tile) {
  if (tile.offsets == 3)
    return gradient_tile_of<Vectors, streams_at_once<Vectors>(kVectors, 3), 3, kVectors>(tile);
  gradient_tile_of<Vectors, streams_at_once<Vectors>(kVectors, 1), 1, kVectors>(tile);
}

template <typename Vectors>
void gradient_tile(const GradientTile& tile, int vectors) {
  if (vectors == 1) return gradient_tile_of<Vectors, 1>(tile);
  if (vectors == 2) return gradient_tile_of<Vectors, 2>(tile);
  gradient_tile_of<Vectors, 4>(tile);
}

// Plain loops, which the compiler makes vectors of as far as the file's instruction set allows.
inline void depthwise_channels(const DepthwiseRun& run, const DepthwiseWeights& w, std::int64_t first,
                               std::int64_t last) {
  for (std::int64_t pixel = 0; pixel < run.pixels; ++pixel) {
    const std::uint8_t* source = run.source + pixel * run.source_step;
    float* out = run.out + pixel * run.out_step;
    for (std::int64_t c = first; c < last; ++c) {
      std::int32_t sum = run.class_sum[c], window_sum = 0;
      for (std::int64_t tap = 0; tap < run.count; ++tap) {
        const std::uint8_t x = source[run.taps[tap].source + c];
        sum += x * w.weight[run.taps[tap].weight + c];
        window_sum += x;
      }
      out[c] = static_cast<float>(sum) * w.scale[c] +
               (static_cast<float>(window_sum) * w.window_scale[c] + run.class_value[c]);
    }
  }
}

inline void depthwise_row_channels(const DepthwiseRow& row, std::int64_t first, std::int64_t last) {
  for (int tap = 0; tap < row.taps; ++tap) {
    for (std::int64_t c = first; c < last; ++c) {
      std::int32_t sum = row.sum[tap * row.channels + c];
      for (std::int64_t col = 0; col < row.cols; ++col) {
        sum += row.error[col * row.channels + c] * row.input[(col * row.step + tap) * row.channels + c];
      }
      row.sum[tap * row.channels + c] = sum;
    }
  }
}

inline void plain_channel_sums(const std::int8_t* input, std::int64_t quads, const PixelLayout& layout,
                               std::int64_t pixels, std::int32_t* sum) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
    std::int32_t total = 0;
    for (std::int64_t quad = 0; quad < quads; ++quad) {
      const std::int8_t* x = input + quad * layout.quad_step + layout.pixel_step * pixel;
      total += x[0] + x[1] + x[2] + x[3];
    }
    sum[pixel] = total;
  }
}

// Sixteen channels at once, so that the loops over pixels, taps and columns stay outside.
inline void plain_depthwise_run(const DepthwiseRun& run, const DepthwiseWeights& w) {
  for (std::int64_t c = 0; c < w.channels; c += kLanes) {
    depthwise_channels(run, w, c, c + kLanes < w.channels ? c + kLanes : w.channels);
  }
}

inline void plain_depthwise_row(const DepthwiseRow& row) {
  for (std::int64_t c = 0; c < row.channels; c += kLanes) {
    depthwise_row_channels(row, c, c + kLanes < row.channels ? c + kLanes : row.channels);
  }
}

template <typename Vectors>
int most_streams(int vectors, int offsets) {
  return streams_at_once<Vectors>(vectors, offsets);
}

}  // namespace
}  // namespace lowtide::integer
