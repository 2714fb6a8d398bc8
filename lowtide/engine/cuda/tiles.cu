// How convolutions are cut into tiles of pixels.
#include <algorithm>

#include "lowtide/engine/cuda/tiles.cuh"

namespace lowtide::cuda {
namespace {

constexpr int kMostTileTaps = 9;
constexpr int kMostStride = 2;
constexpr int kChannelBlocksOfOneTap = 8;  // of a chunk: 128 along the sum
constexpr int kFewChannels = 64;           // that are one chunk: every further one costs a copy and a barrier

// A tap of a phase: where it reads, in source pixels from a position's first, and its number in the weight.
struct Tap {
  int row, col, number;
};

// Tiles are whole rows of images, or whole images; pixels that are read alone need not be.
bool cut_positions(PixelTiles& t, int block_rows) {
  t.tile_images = 1;
  t.tile_cols = t.position_cols;
  if (t.position_rows == 1 && t.images == 1) {
    t.tile_rows = 1;
    t.tile_cols = block_rows;
  } else {
    if (t.position_cols > block_rows) return false;
    t.tile_rows = std::min(block_rows / t.position_cols, t.position_rows);
    while (t.position_rows % t.tile_rows != 0) --t.tile_rows;
    if (t.tile_rows == t.position_rows)
      t.tile_images = std::min(block_rows / (t.position_rows * t.position_cols), t.images);
    if (2 * t.tile_images * t.tile_rows * t.tile_cols <= block_rows) return false;
  }
  t.col_tiles = divide_up(t.position_cols, t.tile_cols);
  t.group_tiles = t.position_rows / t.tile_rows * t.col_tiles;
  t.phase_tiles = divide_up(t.images, t.tile_images) * t.group_tiles;
  t.tiles = t.phase_tiles * t.phases;
  return true;
}

// The pixels that a tile reads, for taps that reach over so many.
void set_halo(PixelTiles& t, int tap_rows, int tap_cols) {
  t.halo_rows = (t.tile_rows - 1) * t.step + tap_rows;
  t.pitch = (t.tile_cols - 1) * t.step + tap_cols;
  t.by_image = Divisor(t.tile_rows * t.tile_cols);
  t.by_col = Divisor(t.tile_cols);
  t.by_halo = Divisor(t.halo());
  t.by_pitch = Divisor(t.pitch);
  t.by_group = Divisor(t.group_tiles);
  t.by_col_tiles = Divisor(t.col_tiles);
  t.by_phase = Divisor(t.phase_tiles);
}

void add_tap(const PixelTiles& t, TilePhase& phase, const Tap& tap) {
  for (int channel_block = 0; channel_block < t.channel_blocks; ++channel_block) {
    const int unit = phase.units++;
    phase.offset[unit] =
        (channel_block * t.tile_images * t.halo() + tap.row * t.pitch + tap.col) * kUnitBytes;
    phase.offset[unit + 1] = phase.offset[unit];  // units are read in pairs
    phase.weight_unit[unit] = tap.number * t.all_channel_blocks + channel_block;
  }
}

void set_source(PixelTiles& t, const std::uint8_t* code, int images, int height, int width, int channels) {
  t.code = code;
  t.images = images;
  t.height = height;
  t.width = width;
  t.channels = channels;
  t.all_channel_blocks = divide_up(channels, kUnitBytes);
}

// Channel blocks of a chunk.
void set_channel_blocks(PixelTiles& t, int most) {
  while (t.channel_blocks < t.all_channel_blocks && t.channel_blocks < most)
    t.channel_blocks = 1 << ++t.log_channel_blocks;
  t.chunks = divide_up(t.all_channel_blocks, t.channel_blocks);
}

// A 1 × 1 kernel in steps of 1: pixels have no neighbours, and all are one row.
PixelTiles pixelwise(const std::uint8_t* code, int pixels, int channels, int block_rows) {
  PixelTiles t;
  set_source(t, code, 1, 1, pixels, channels);
  t.position_rows = t.result_rows = 1;
  t.position_cols = t.result_cols = pixels;
  set_channel_blocks(t, kChannelBlocksOfOneTap);
  cut_positions(t, block_rows);
  set_halo(t, 1, 1);
  add_tap(t, t.phase[0], {0, 0, 0});
  return t;
}

bool is_pixelwise(const ConvGeometry& g) {
  return g.taps() == 1 && g.stride_rows == 1 && g.stride_cols == 1 && g.pad_rows == 0 && g.pad_cols == 0;
}

// Sixteen channels are copied at once; with one tap, eight.
bool can_cut(const ConvGeometry& g, int channels) {
  return g.taps() <= kMostTileTaps && g.stride_rows == g.stride_cols && g.stride_rows <= kMostStride &&
         channels % (g.taps() == 1 ? 8 : 16) == 0 && g.images > 0;
}

// The taps of one dimension that lead from inputs of one parity to outputs: position + distance.
struct PhaseTaps {
  int count = 0;
  int tap[kMostTileTaps]{}, distance[kMostTileTaps]{};

  PhaseTaps(int phase, int kernel, int stride, int pad) {
    for (int t = 0; t < kernel; ++t) {
      const int from = phase + pad - t;
      if ((from % stride + stride) % stride != 0) continue;
      tap[count] = t;
      distance[count++] = from / stride;  // a multiple: exact for negative numbers too
    }
  }
};

// The distances of all phases.
struct TapSpan {
  int least = 0, most = 0;

  TapSpan(int kernel, int stride, int pad) {
    bool first = true;
    for (int phase = 0; phase < stride; ++phase) {
      const PhaseTaps taps(phase, kernel, stride, pad);
      for (int i = 0; i < taps.count; ++i) {
        least = first ? taps.distance[i] : std::min(least, taps.distance[i]);
        most = first ? taps.distance[i] : std::max(most, taps.distance[i]);
        first = false;
      }
    }
  }
  int extent() const { return most - least + 1; }
};

}  // namespace

namespace {

// 32 along the sum are of one tap, or sixteen and sixteen of two.
bool has_whole_steps(int channels) { return channels == 16 || channels % 32 == 0; }

PixelTiles window_tiles(const ConvGeometry& g, const std::uint8_t* x, int block_rows,
                        int most_channel_blocks) {
  PixelTiles t;
  set_source(t, x, g.images, g.height, g.width, g.inputs);
  t.position_rows = t.result_rows = g.rows;
  t.position_cols = t.result_cols = g.cols;
  t.source_step = g.stride_rows;
  (g.taps() == 1 ? t.load_step : t.step) = g.stride_rows;
  t.first_row = -g.pad_rows;
  t.first_col = -g.pad_cols;
  set_channel_blocks(t, most_channel_blocks);
  if (!cut_positions(t, block_rows)) return {};
  set_halo(t, g.kernel_rows, g.kernel_cols);
  for (int tap = 0; tap < g.taps(); ++tap)
    add_tap(t, t.phase[0], {tap / g.kernel_cols, tap % g.kernel_cols, tap});
  return t;
}

}  // namespace

PixelTiles output_tiles(const ConvGeometry& g, const std::uint8_t* x, int m_tiles) {
  const int block_rows = 64 * m_tiles;
  if (!can_cut(g, g.inputs)) return {};
  if (is_pixelwise(g)) return pixelwise(x, g.input_pixels(), g.inputs, block_rows);
  if (g.taps() == 1) return window_tiles(g, x, block_rows, kChannelBlocksOfOneTap);
  if (!has_whole_steps(g.inputs)) return {};
  return window_tiles(g, x, block_rows, g.inputs <= kFewChannels ? 4 : 2);
}

PixelTiles weight_gradient_tiles(const ConvGeometry& g, const std::uint8_t* x, int channel_blocks) {
  const int block_rows = g.taps() == 1 ? 128 : 256;
  if (!can_cut(g, g.inputs)) return {};
  PixelTiles t = is_pixelwise(g) ? pixelwise(x, g.input_pixels(), g.inputs, block_rows)
                                 : window_tiles(g, x, block_rows, 1);
  // Channel blocks beyond the last channel are there too, as zeros.
  t.channel_blocks = channel_blocks;
  t.log_channel_blocks = 0;
  while (1 << t.log_channel_blocks < channel_blocks) ++t.log_channel_blocks;
  return t;
}

PixelTiles input_gradient_tiles(const ConvGeometry& g, const std::uint8_t* dy, int m_tiles) {
  const int block_rows = 64 * m_tiles, stride = g.stride_rows;
  if (!can_cut(g, g.outputs)) return {};
  if (is_pixelwise(g)) return pixelwise(dy, g.output_pixels(), g.outputs, block_rows);
  // Taps of a phase are no neighbours along the sum.
  if (g.taps() > 1 && (!has_whole_steps(g.outputs) || (stride > 1 && g.outputs == 16))) return {};
  const TapSpan row_span(g.kernel_rows, stride, g.pad_rows), col_span(g.kernel_cols, stride, g.pad_cols);
  PixelTiles t;
  set_source(t, dy, g.images, g.rows, g.cols, g.outputs);
  t.position_rows = divide_up(g.height, stride);
  t.position_cols = divide_up(g.width, stride);
  t.result_rows = g.height;
  t.result_cols = g.width;
  t.result_step = stride;
  t.first_row = row_span.least;
  t.first_col = col_span.least;
  // Weights take 96 bytes a step and column: they come tap row by tap row, so that two blocks have room.
  t.phases = stride * stride;
  set_channel_blocks(t, g.taps() == 1                          ? kChannelBlocksOfOneTap
                        : t.phases == 1 && g.outputs % 64 == 0 ? 4
                                                               : 2);
  if (g.taps() == 9 && t.phases == 1 && t.channel_blocks > 1) t.parts = 3;
  if (!cut_positions(t, block_rows)) return {};
  set_halo(t, row_span.extent(), col_span.extent());
  for (int i = 0; i < t.phases; ++i) {
    TilePhase& phase = t.phase[i];
    phase.result_row = i / stride;
    phase.result_col = i % stride;
    const PhaseTaps rows(phase.result_row, g.kernel_rows, stride, g.pad_rows),
        cols(phase.result_col, g.kernel_cols, stride, g.pad_cols);
    for (int r = 0; r < rows.count; ++r) {
      for (int c = 0; c < cols.count; ++c)
        add_tap(t, phase,
                {rows.distance[r] - row_span.least, cols.distance[c] - col_span.least,
                 rows.tap[r] * g.kernel_cols + cols.tap[c]});
    }
  }
  return t;
}

}  // namespace lowtide::cuda
