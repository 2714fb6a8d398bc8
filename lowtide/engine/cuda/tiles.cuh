#pragma once

#include "lowtide/engine/cuda/divisor.cuh"
#include "lowtide/engine/cuda/product.cuh"

// The rows of a product as tiles of pixels in shared memory: the pixels that a tile's taps read lie there once, sixteen channels
// of a pixel after the other, and what a tap reads is an offset.

namespace lowtide::cuda {

inline constexpr int kUnitBytes = 16;  // of a pixel: the least that is copied
inline constexpr int kMostUnits = 36;  // nine taps of 64 channels

// Which units of the source a tile's positions read, for one of the interleaved grids of results. A stride leads a tap of an input
// gradient only to every second pixel: pixels of each parity are a grid of their own, with the taps that reach it.
struct TilePhase {
  int units = 0;                       // of one chunk
  int result_row = 0, result_col = 0;  // of the first position
  int offset[kMostUnits + 1]{};        // of a unit in shared memory, from a position's first pixel
  int weight_unit[kMostUnits]{};       // of the weight along the sum, for the first chunk
};

struct PixelTiles {
  static constexpr int kMostPhases = 4;

  const std::uint8_t* code = nullptr;
  int images = 0, height = 0, width = 0, channels = 0;  // of the source
  int position_rows = 0, position_cols = 0;             // of an image
  int result_rows = 0, result_cols = 0,
      result_step = 1;                                // of an image of the result; from position to position
  int tile_images = 0, tile_rows = 0, tile_cols = 0;  // positions
  int group_tiles = 0, col_tiles = 0;                 // of tile_images images; in a row of tiles
  int phase_tiles = 0, tiles = 0;                     // of a phase; in all
  int halo_rows = 0, pitch = 0;                       // source pixels of an image of a tile
  int step = 1;                                       // in shared memory, from position to position
  int source_step = 1, load_step = 1;  // in the source: from position to position, from pixel to pixel
  int first_row = 0, first_col = 0;    // of the source, for position 0
  int channel_blocks = 1, log_channel_blocks = 0;  // of 16 channels, in a chunk: a power of 2
  int chunks = 1, all_channel_blocks = 1;
  int parts = 1;  // in which the weights of a chunk come
  int phases = 1;
  int next_rows = 0, next_cols = 0;  // from a pixel that a thread copies to its next
  Divisor by_image, by_col, by_halo, by_pitch, by_group, by_col_tiles, by_phase;
  TilePhase phase[kMostPhases];

  __host__ __device__ int halo() const { return halo_rows * pitch; }
  __host__ __device__ int positions() const { return tile_images * tile_rows * tile_cols; }
  __host__ __device__ int results() const { return images * result_rows * result_cols; }
  // For blocks of so many threads.
  void set_threads(int threads) {
    next_rows = threads / channel_blocks / pitch;
    next_cols = threads / channel_blocks % pitch;
  }
};

// The tiles of 64 · m_tiles rows of an output or an input gradient; none where shapes do not allow it, or tiles would stay half
// empty.
PixelTiles output_tiles(const ConvGeometry& g, const std::uint8_t* x, int m_tiles);
PixelTiles input_gradient_tiles(const ConvGeometry& g, const std::uint8_t* dy, int m_tiles);
// Those of a weight gradient, of `channel_blocks` of the input each: tiles of 256 positions at most, with one tap of 128.
PixelTiles weight_gradient_tiles(const ConvGeometry& g, const std::uint8_t* x, int channel_blocks);

// A tile by its number.
struct TileAt {
  int phase, first_image, row, col;  // of its first position

  __device__ TileAt(const PixelTiles& t, int tile) {
    phase = t.by_phase.of(tile);
    const int in_phase = tile - phase * t.phase_tiles;
    const int group = t.by_group.of(in_phase);
    const int in_group = in_phase - group * t.group_tiles;
    const int row_tile = t.by_col_tiles.of(in_group);
    first_image = group * t.tile_images;
    row = row_tile * t.tile_rows;
    col = (in_group - row_tile * t.col_tiles) * t.tile_cols;
  }
};

// A row of the product: a position of a tile.
struct TilePosition {
  int image, row, col;

  __device__ TilePosition(const PixelTiles& t, int number) {
    image = t.by_image.of(number);
    const int at = number - image * t.tile_rows * t.tile_cols;
    row = t.by_col.of(at);
    col = at - row * t.tile_cols;
  }
  // In one word: a tile has at most 128 positions.
  __device__ int packed() const { return image << 16 | row << 8 | col; }
  __device__ static int image_of(int packed) { return packed >> 16; }
  __device__ static int row_of(int packed) { return packed >> 8 & 0xff; }
  __device__ static int col_of(int packed) { return packed & 0xff; }
  // Where its first source pixel lies in shared memory.
  __device__ int place(const PixelTiles& t) const {
    return ((image * t.halo_rows + row * t.step) * t.pitch + col * t.step) * kUnitBytes;
  }
};

// The rows of a product that a block goes through, as tiles. kUnit: bytes that are copied at once. kStrided: results lie apart, in
// phases; else the results of tiles lie one after the other.
template <int kThreads, int kMTiles, int kUnit, bool kStrided>
class TileRows {
 public:
  using Shape = PixelTiles;
  static constexpr bool kAligned = true;  // channels of the result come in fours
  __host__ __device__ static int stage_bytes(const PixelTiles& t) {
    return t.channel_blocks * t.tile_images * t.halo() * kUnitBytes;
  }

  __device__ explicit TileRows(const PixelTiles& shape) : t_(shape) {
    const int thread = static_cast<int>(threadIdx.x), last = t_.positions() - 1;
#pragma unroll
    for (int m = 0; m < kMTiles; ++m)
      place_[m] = TilePosition(t_, min(first_row(m) + thread % 16, last)).place(t_);
#pragma unroll
    for (int i = 0; i < 2 * kMTiles; ++i) position_[i] = TilePosition(t_, min(row(i), last)).packed();
  }

  // Copies a chunk of a tile into shared memory; `fill` is the byte that counts as 0. A thread stays with one channel block.
  __device__ void load(int tile, int chunk, unsigned fill, std::uint8_t* stage) const {
    const unsigned word = fill * 0x01010101u;
    const TileAt at(t_, tile);
    const int pixels = t_.tile_images * t_.halo(), channel_blocks = t_.channel_blocks,
              thread = static_cast<int>(threadIdx.x);
    const int first = thread >> t_.log_channel_blocks, together = kThreads >> t_.log_channel_blocks;
    const int channel_block = thread & (channel_blocks - 1),
              channel = (chunk * channel_blocks + channel_block) * kUnitBytes;
    const int first_row = at.row * t_.source_step + t_.first_row,
              first_col = at.col * t_.source_step + t_.first_col;
    HaloPixel pixel(t_, first);
    std::uint8_t* to = stage + (channel_block * pixels + first) * kUnitBytes;
    for (int number = first; number < pixels; number += together) {
      const int image = at.first_image + pixel.image, row = first_row + pixel.row * t_.load_step,
                col = first_col + pixel.col * t_.load_step;
      const bool inside = image < t_.images &&
                          static_cast<unsigned>(row) < static_cast<unsigned>(t_.height) &&
                          static_cast<unsigned>(col) < static_cast<unsigned>(t_.width);
      const std::uint8_t* from =
          t_.code + static_cast<long long>((image * t_.height + row) * t_.width + col) * t_.channels +
          channel;
#pragma unroll
      for (int k = 0; k < kUnitBytes; k += kUnit) {
        if (inside && channel + k < t_.channels) {
          copy_async<kUnit>(to + k, from + k);
        } else if constexpr (kUnit == 16) {
          *reinterpret_cast<uint4*>(to) = make_uint4(word, word, word, word);
        } else {
          *reinterpret_cast<uint2*>(to + k) = make_uint2(word, word);
        }
      }
      to += together * kUnitBytes;
      pixel.advance(t_);
    }
  }

  // What a chunk of a tile multiplies: units of 16 along the sum, read in pairs.
  class Chunk {
   public:
    __device__ Chunk(const TileRows& rows, int tile, int chunk)
        : t_(rows.t_), phase_(t_.phase[kStrided ? t_.by_phase.of(tile) : 0]), chunk_(chunk) {}
    // Of a kernel of one tap, some channel blocks of the last chunk may not be there, and phases may have no tap at all.
    __device__ int units() const {
      if (kStrided && phase_.units == 0) return 0;
      const int left = t_.all_channel_blocks - chunk_ * t_.channel_blocks;
      return left < t_.channel_blocks ? left : phase_.units;
    }
    __device__ int offset(int pair) const {
      return threadIdx.x % kWarp < 16 ? phase_.offset[2 * pair] : phase_.offset[2 * pair + 1];
    }
    __device__ int weight_unit(int unit) const {
      return phase_.weight_unit[unit] + chunk_ * t_.channel_blocks;
    }

   private:
    const PixelTiles& t_;
    const TilePhase& phase_;
    int chunk_;
  };

  // This lane's row of tile m, in a stage.
  __device__ int place(int m) const { return place_[m]; }

  // The pixels of the result that a lane holds of a tile.
  class Results {
   public:
    __device__ Results(const TileRows& rows, int tile) : rows_(rows), t_(rows.t_), at_(t_, tile) {
      first_ = tile * t_.positions();
    }
    // Below 0 where there is none.
    __device__ int number(int i) const {
      const int row_number = rows_.row(i);
      if constexpr (kStrided) {
        const int image = at_.first_image + TilePosition::image_of(rows_.position_[i]);
        if (row_number >= t_.positions() || image >= t_.images || row(i) >= t_.result_rows ||
            col(i) >= t_.result_cols)
          return -1;
        return (image * t_.result_rows + row(i)) * t_.result_cols + col(i);
      } else {
        return row_number < t_.positions() && first_ + row_number < t_.results() ? first_ + row_number : -1;
      }
    }
    __device__ int row(int i) const {
      const int position = at_.row + TilePosition::row_of(rows_.position_[i]);
      return kStrided ? position * t_.result_step + t_.phase[at_.phase].result_row : position;
    }
    __device__ int col(int i) const {
      const int position = at_.col + TilePosition::col_of(rows_.position_[i]);
      return kStrided ? position * t_.result_step + t_.phase[at_.phase].result_col : position;
    }

   private:
    const TileRows& rows_;
    const PixelTiles& t_;
    TileAt at_;
    int first_;
  };

 private:
  // A pixel in shared memory, by image, row and column of the halo.
  struct HaloPixel {
    int image, row, col;

    __device__ HaloPixel(const PixelTiles& t, int number) {
      image = t.by_halo.of(number);
      const int at = number - image * t.halo();
      row = t.by_pitch.of(at);
      col = at - row * t.pitch;
    }
    // To the pixel that this thread copies next.
    __device__ void advance(const PixelTiles& t) {
      col += t.next_cols;
      row += t.next_rows;
      if (col >= t.pitch) {
        col -= t.pitch;
        ++row;
      }
      while (row >= t.halo_rows) {
        row -= t.halo_rows;
        ++image;
      }
    }
  };

  __device__ static int first_row(int m) {
    return (static_cast<int>(threadIdx.x) / kWarp % kRowWarps * kMTiles + m) * 16;
  }
  // Of the block's tile: what this lane holds as its number i.
  __device__ static int row(int i) {
    return first_row(i / 2) + i % 2 * 8 + static_cast<int>(threadIdx.x) % kWarp / 4;
  }

  const PixelTiles& t_;
  int place_[kMTiles];
  int position_[2 * kMTiles];
};

}  // namespace lowtide::cuda
