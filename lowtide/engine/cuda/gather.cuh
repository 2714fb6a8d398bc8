#pragma once

#include "lowtide/engine/cuda/divisor.cuh"
#include "lowtide/engine/cuda/product.cuh"

namespace lowtide::cuda {

// A convolution of any shape as a product of matrices whose left one is never written: a row is a pixel of the result, a column
// a tap and a channel of the source. Bytes of the left matrix come into shared memory a chunk of columns at a time, each as often
// as a tap reads it; what can be cut into tiles (tiles.cuh) is faster.
inline constexpr int kChunk = 64;  // bytes of a row
inline constexpr int kRowBytes =
    kChunk + 16;  // in shared memory: eight rows' 16 bytes lie in different banks

// Bytes a lane copies at once: what divides the number of channels.
inline int unit_for(int channels) {
  return channels % 16 == 0 ? 16 : channels % 8 == 0 ? 8 : channels % 4 == 0 ? 4 : 1;
}

struct GatherShape {
  const std::uint8_t* code = nullptr;
  int images = 0, height = 0, width = 0, channels = 0;  // of the source
  int pixels = 0;                                       // of the result
  PixelDivisor results;
  int kernel_rows = 0, kernel_cols = 0, stride_rows = 1, stride_cols = 1, pad_rows = 0, pad_cols = 0;
  int tiles = 0, chunks = 0;
  static constexpr int phases = 1, parts = 1;
};

// For an output; or, transposed, for an input gradient, whose source is the error. In tiles of 64 rows.
inline GatherShape gather_shape(const ConvGeometry& g, const std::uint8_t* code, bool transposed) {
  GatherShape s;
  s.code = code;
  s.images = g.images;
  s.height = transposed ? g.rows : g.height;
  s.width = transposed ? g.cols : g.width;
  s.channels = transposed ? g.outputs : g.inputs;
  s.pixels = transposed ? g.input_pixels() : g.output_pixels();
  s.results = transposed ? PixelDivisor(g.height, g.width) : PixelDivisor(g.rows, g.cols);
  s.kernel_rows = g.kernel_rows;
  s.kernel_cols = g.kernel_cols;
  s.stride_rows = g.stride_rows;
  s.stride_cols = g.stride_cols;
  s.pad_rows = g.pad_rows;
  s.pad_cols = g.pad_cols;
  s.tiles = divide_up(s.pixels, 64);
  s.chunks = divide_up(g.taps() * s.channels, kChunk);
  return s;
}

// Where column k of the left matrix lies: a tap and a channel.
struct TapCursor {
  int row = 0, col = 0, channel = 0;

  __device__ void advance(int columns, const GatherShape& s) {
    channel += columns;
    while (channel >= s.channels) {
      channel -= s.channels;
      if (++col == s.kernel_cols) col = 0, ++row;
    }
  }
};

// The rows of a product that a block goes through, gathered. kTransposed: they are the pixels of a convolution's input, and the
// source is its output. kUnit: bytes that are copied at once.
template <int kThreads, int kMTiles, int kUnit, bool kTransposed>
class GatherRows {
 public:
  using Shape = GatherShape;
  static constexpr bool kAligned = false;  // channels of the result need not come in fours
  static constexpr int kRows = 16 * kMTiles * kRowWarps;
  __host__ __device__ static int stage_bytes(const GatherShape&) { return kRows * kRowBytes; }

  __device__ explicit GatherRows(const GatherShape& shape) : s_(shape) {}

  // Chunks of a tile are asked for one after the other. `fill` is the byte that counts as 0.
  __device__ void load(int tile, int chunk, unsigned fill, std::uint8_t* stage) {
    const unsigned word = fill * 0x01010101u;
    if (chunk == 0) start(tile * kRows);
    std::uint8_t* to = stage + static_cast<int>(threadIdx.x) % kSlots * kSlot;
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) load_slot(i, word, to + row_of(i) * kRowBytes);
    cursor_.advance(kChunk, s_);
  }

  class Chunk {
   public:
    __device__ Chunk(const GatherRows&, int, int chunk) : chunk_(chunk) {}
    __device__ int units() const { return kSlots; }
    __device__ int offset(int pair) const {
      return (2 * pair + static_cast<int>(threadIdx.x) % kWarp / 16) * kSlot;
    }
    __device__ int weight_unit(int unit) const { return chunk_ * kSlots + unit; }

   private:
    int chunk_;
  };

  __device__ int place(int m) const {
    const int thread = static_cast<int>(threadIdx.x), row_warp = thread / kWarp % kRowWarps;
    return ((row_warp * kMTiles + m) * 16 + thread % 16) * kRowBytes;
  }
  class Results {
   public:
    __device__ Results(const GatherRows& rows, int tile) : s_(rows.s_), first_(tile * kRows) {}
    __device__ int number(int i) const {
      const int pixel = first_ + row_number(i);
      return pixel < s_.pixels ? pixel : -1;
    }
    __device__ int row(int i) const { return split(i).x; }
    __device__ int col(int i) const { return split(i).y; }

   private:
    __device__ static int row_number(int i) {
      const int thread = static_cast<int>(threadIdx.x);
      return (thread / kWarp % kRowWarps * kMTiles + i / 2) * 16 + i % 2 * 8 + thread % kWarp / 4;
    }
    __device__ int2 split(int i) const {
      int image, row, col;
      s_.results.split(first_ + row_number(i), image, row, col);
      return make_int2(row, col);
    }

    const GatherShape& s_;
    int first_;
  };

 private:
  // A chunk of a row is read as slots of 16 bytes, a thread each.
  static constexpr int kSlot = 16, kSlots = kChunk / kSlot;
  static constexpr int kRowsPerThread = kRows * kSlots / kThreads;
  static constexpr int kNowhere = -(1 << 28);  // a row that no tap leads into the source

  __device__ static int row_of(int i) {
    return static_cast<int>(threadIdx.x) / kSlots + i * (kThreads / kSlots);
  }

  __device__ void start(int first_pixel) {
    cursor_ = {};
    cursor_.advance(static_cast<int>(threadIdx.x) % kSlots * kSlot, s_);
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      int image, row, col;
      s_.results.split(first_pixel + row_of(i), image, row, col);
      row_[i] = kTransposed ? row + s_.pad_rows : row * s_.stride_rows - s_.pad_rows;
      col_[i] = kTransposed ? col + s_.pad_cols : col * s_.stride_cols - s_.pad_cols;
      image_[i] = s_.code + static_cast<long long>(image) * s_.height * s_.width * s_.channels;
      if (image >= s_.images) row_[i] = kNowhere;
    }
  }

  __device__ const std::uint8_t* source_of(int i, const TapCursor& at) const {
    int row = kTransposed ? row_[i] - at.row : row_[i] + at.row;
    int col = kTransposed ? col_[i] - at.col : col_[i] + at.col;
    bool there = at.row < s_.kernel_rows;
    if (kTransposed && s_.stride_rows > 1) there &= row % s_.stride_rows == 0, row /= s_.stride_rows;
    if (kTransposed && s_.stride_cols > 1) there &= col % s_.stride_cols == 0, col /= s_.stride_cols;
    there &= static_cast<unsigned>(row) < static_cast<unsigned>(s_.height) &&
             static_cast<unsigned>(col) < static_cast<unsigned>(s_.width);
    return there ? image_[i] + ((row * s_.width + col) * s_.channels + at.channel) : nullptr;
  }

  __device__ void load_slot(int i, unsigned fill, std::uint8_t* to) {
    if constexpr (kUnit == 16) {
      if (const std::uint8_t* from = source_of(i, cursor_)) {
        copy_async<16>(to, from);
      } else {
        *reinterpret_cast<uint4*>(to) = make_uint4(fill, fill, fill, fill);
      }
    } else if constexpr (kUnit >= 4) {
      TapCursor at = cursor_;
#pragma unroll
      for (int k = 0; k < kSlot; k += kUnit) {
        if (const std::uint8_t* from = source_of(i, at)) {
          copy_async<kUnit>(to + k, from);
        } else {
#pragma unroll
          for (int w = 0; w < kUnit; w += 4) *reinterpret_cast<unsigned*>(to + k + w) = fill;
        }
        at.advance(kUnit, s_);
      }
    } else {
      TapCursor at = cursor_;
      unsigned words[kSlot / 4];
#pragma unroll
      for (int w = 0; w < kSlot / 4; ++w) {
        words[w] = 0;
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          const std::uint8_t* from = source_of(i, at);
          words[w] |= static_cast<unsigned>(from != nullptr ? *from : fill & 0xffu) << (8 * b);
          at.advance(1, s_);
        }
      }
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }

  const GatherShape& s_;
  TapCursor cursor_;
  const std::uint8_t* image_[kRowsPerThread];
  int row_[kRowsPerThread], col_[kRowsPerThread];
};

}  // namespace lowtide::cuda
