#pragma once

#include "lowtide/engine/cuda/device.cuh"

namespace lowtide::cuda {

// A convolution as a product of matrices whose left one is never written: a row is a pixel of the result, a column a tap and
// a channel of the source. Bytes of the left matrix come into shared memory a chunk of columns at a time.
inline constexpr int kChunk = 64;  // bytes of a row
inline constexpr int kRowBytes =
    kChunk + 16;  // in shared memory: eight rows' 16 bytes lie in different banks
inline constexpr int kGatherThreads = 128;
inline constexpr int kStages = 3;  // chunks in shared memory: two are on their way

// Bytes a lane copies at once: what divides the number of channels.
inline int unit_for(int channels) {
  return channels % 16 == 0 ? 16 : channels % 8 == 0 ? 8 : channels % 4 == 0 ? 4 : 1;
}

// Division by a number that is known on the host: a multiplication and a shift (Granlund and Montgomery, "Division by
// invariant integers using multiplication", PLDI 1994, figure 4.1), for numerators below 2^31.
struct Divisor {
  unsigned divisor = 1, factor = 0, shift = 0;

  Divisor() = default;
  explicit Divisor(int by) : divisor(static_cast<unsigned>(by)) {
    while ((1ull << shift) < divisor) ++shift;
    factor = static_cast<unsigned>(((1ull << 32) * ((1ull << shift) - divisor)) / divisor + 1);
  }
  __device__ unsigned quotient(unsigned n) const { return (__umulhi(n, factor) + n) >> shift; }
};

// A pixel's number as image, row and column.
struct PixelDivisor {
  Divisor area, cols;

  PixelDivisor() = default;
  PixelDivisor(int rows, int of_cols) : area(rows * of_cols), cols(of_cols) {}
  __device__ void split(int pixel, int& image, int& row, int& col) const {
    const unsigned number = static_cast<unsigned>(pixel), i = area.quotient(number),
                   at = number - i * area.divisor;
    const unsigned r = cols.quotient(at);
    image = static_cast<int>(i);
    row = static_cast<int>(r);
    col = static_cast<int>(at - r * cols.divisor);
  }
};

struct Source {
  const std::uint8_t* code;
  int images, height, width, channels;
  PixelDivisor results;
  int kernel_rows, kernel_cols, stride_rows, stride_cols, pad_rows, pad_cols;
  int packed_tiles;  // of 8 columns, of the right matrix
};

// Where column k of the left matrix lies: a tap and a channel.
struct TapCursor {
  int row = 0, col = 0, channel = 0;

  __device__ void advance(int columns, const Source& s) {
    channel += columns;
    while (channel >= s.channels) {
      channel -= s.channels;
      if (++col == s.kernel_cols) col = 0, ++row;
    }
  }
};

// kTransposed: the rows are the pixels of a convolution's input and the source is its output.
template <int kRows, int kUnit, bool kTransposed>
class Gather {
 public:
  // Reads whole chunks of 16 bytes, four threads a row. `fill` is the byte that counts as 0.
  static constexpr int kSlot = 16, kSlots = kChunk / kSlot;
  static constexpr int kRowsPerThread = kRows * kSlots / kGatherThreads;

  __device__ Gather(const Source& source, int first_pixel, unsigned fill = 0)
      : s_(source), fill_(fill * 0x01010101u) {
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

  // The next chunk.
  __device__ void load(std::uint8_t* stage) {
    std::uint8_t* to = stage + static_cast<int>(threadIdx.x) % kSlots * kSlot;
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) load_slot(i, to + row_of(i) * kRowBytes);
    cursor_.advance(kChunk, s_);
  }

 private:
  static constexpr int kNowhere = -(1 << 28);  // a row that no tap leads into the source

  __device__ static int row_of(int i) {
    return static_cast<int>(threadIdx.x) / kSlots + i * (kGatherThreads / kSlots);
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

  __device__ void load_slot(int i, std::uint8_t* to) {
    if constexpr (kUnit == 16) {
      if (const std::uint8_t* from = source_of(i, cursor_)) {
        copy_async<16>(to, from);
      } else {
        *reinterpret_cast<uint4*>(to) = make_uint4(fill_, fill_, fill_, fill_);
      }
    } else if constexpr (kUnit >= 4) {
      TapCursor at = cursor_;
#pragma unroll
      for (int k = 0; k < kSlot; k += kUnit) {
        if (const std::uint8_t* from = source_of(i, at)) {
          copy_async<kUnit>(to + k, from);
        } else {
#pragma unroll
          for (int w = 0; w < kUnit; w += 4) *reinterpret_cast<unsigned*>(to + k + w) = fill_;
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
          words[w] |= static_cast<unsigned>(from != nullptr ? *from : fill_ & 0xffu) << (8 * b);
          at.advance(1, s_);
        }
      }
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }

  const Source& s_;
  const unsigned fill_;
  TapCursor cursor_;
  const std::uint8_t* image_[kRowsPerThread];
  int row_[kRowsPerThread], col_[kRowsPerThread];
};

// Goes through all chunks: compute(stage, chunk) sees each when it lies in shared memory.
template <int kRows, typename Gathering, typename Compute>
__device__ inline void for_each_chunk(Gathering& gather, std::uint8_t* shared, int chunks,
                                      const Compute& compute) {
  constexpr int kStageBytes = kRows * kRowBytes;
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < chunks) gather.load(shared + i * kStageBytes);
    commit_copies();
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    const int next = chunk + kStages - 1;
    if (next < chunks) gather.load(shared + next % kStages * kStageBytes);
    commit_copies();
    compute(shared + chunk % kStages * kStageBytes, chunk);
  }
  wait_for_copies<0>();
  __syncthreads();
}

// Unit that says: the block's pixels are whole rows of one image, and with a border of one pixel they lie in shared memory
// at once, sixteen channels of a pixel after the other: what a 3 × 3 kernel reads of a pixel is then an offset, and nothing is
// copied nine times.
inline constexpr int kHaloUnit = 0;
inline constexpr int kMostHaloColumns = 9 * 8;  // 128 channels

struct HaloShape {
  int rows = 0, pitch = 0, planes = 0;  // pixels; groups of 16 channels
  Divisor by_pitch, by_plane;

  HaloShape() = default;
  HaloShape(const Source& s, int block_rows, int width)
      : rows(block_rows / width + 2),
        pitch(width + 2),
        planes(s.channels / 16),
        by_pitch(pitch),
        by_plane(rows * pitch) {}
  __host__ __device__ int plane() const { return rows * pitch; }
};

// Whether a block of so many rows of the product is such.
inline bool has_halo(const Source& s, int block_rows, int height, int width) {
  if (s.kernel_rows != 3 || s.kernel_cols != 3 || s.pad_rows != 1 || s.pad_cols != 1) return false;
  if (s.stride_rows != 1 || s.stride_cols != 1 || s.channels % 16 != 0) return false;
  if (block_rows % width != 0 || height % (block_rows / width) != 0) return false;
  return 9 * (s.channels / 16) <= kMostHaloColumns &&
         (block_rows / width + 2) * (width + 2) * s.channels <= kStages * block_rows * kRowBytes - 16;
}

template <bool kTransposed>
class Halo {
 public:
  // Copies it into shared memory, and at its end a pixel of `fill`.
  __device__ Halo(const Source& s, const HaloShape& shape, int first_pixel, unsigned fill,
                  std::uint8_t* shared, int* offsets)
      : shape_(shape), shared_(shared), offsets_(offsets), columns_(9 * shape.planes) {
    int image, first_row, col;
    s.results.split(first_pixel, image, first_row, col);
    const unsigned word = fill * 0x01010101u;
    const int pixels = shape.plane(), count = shape.planes * pixels, thread = static_cast<int>(threadIdx.x);
    const std::uint8_t* from = s.code + static_cast<long long>(image) * s.height * s.width * s.channels;
    for (int i = thread; i <= count; i += kGatherThreads) {
      const int plane = static_cast<int>(shape.by_plane.quotient(static_cast<unsigned>(i))),
                at = i - plane * pixels;
      const int halo_row = static_cast<int>(shape.by_pitch.quotient(static_cast<unsigned>(at)));
      const int row = first_row + halo_row - 1, source_col = at - halo_row * shape.pitch - 1;
      const bool there = i < count && static_cast<unsigned>(row) < static_cast<unsigned>(s.height) &&
                         static_cast<unsigned>(source_col) < static_cast<unsigned>(s.width);
      if (there) {
        copy_async<16>(shared + i * 16, from + (row * s.width + source_col) * s.channels + plane * 16);
      } else {
        *reinterpret_cast<uint4*>(shared + i * 16) = make_uint4(word, word, word, word);
      }
    }
    commit_copies();
    // By tap and group of channels, as the right matrix has its rows.
    for (int i = thread; i < columns_; i += kGatherThreads) {
      const int tap = i / shape.planes, plane = i % shape.planes, row = tap / 3, tap_col = tap % 3;
      const int by_row = kTransposed ? 2 - row : row, by_col = kTransposed ? 2 - tap_col : tap_col;
      offsets[i] = (plane * pixels + by_row * shape.pitch + by_col) * 16;
    }
    wait_for_copies<0>();
    __syncthreads();
  }

  __device__ int steps() const { return divide_up(columns_, 2); }
  // Where the row of a block's pixel begins.
  __device__ int pixel(int row, const Source& s) const {
    const int at = static_cast<int>(s.results.cols.quotient(static_cast<unsigned>(row)));
    return (at * shape_.pitch + row - at * static_cast<int>(s.results.cols.divisor)) * 16;
  }
  // Sixteen bytes of a pixel: the first or the second half of a step's 32 columns.
  __device__ const std::uint8_t* columns(int pixel, int step, int half) const {
    const int column = step * 2 + half;
    return shared_ + (column < columns_ ? pixel + offsets_[column] : shape_.planes * shape_.plane() * 16);
  }

 private:
  const HaloShape& shape_;
  std::uint8_t* shared_;
  int* offsets_;
  int columns_;
};

}  // namespace lowtide::cuda
