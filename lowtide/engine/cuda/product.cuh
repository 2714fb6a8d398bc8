#pragma once

#include <algorithm>
#include <type_traits>

#include "lowtide/engine/cuda/device.cuh"
#include "lowtide/engine/cuda/launch.h"

// What the two kernels that multiply pixels by weights share: convolution outputs and input gradients.
//
// A block has 4 × kColWarps warps; a warp computes 16 · kMTiles rows (pixels) and 8 · kNTiles columns (channels). Blocks stay
// and go through several tiles of rows: the next tile's bytes are on their way while this one is computed, and what is summed
// over pixels stays in registers until the end.

namespace lowtide::cuda {

inline constexpr int kRowWarps = 4;

// Blocks that should fit onto a multiprocessor, by what a lane holds in registers.
template <int kNTiles, int kColWarps>
inline constexpr int kResidentBlocks = kColWarps == 2 || kNTiles == 8 ? 2 : 3;

// Columns 4 q .. 4 q + 3 of sixteen belong to the lanes with lane % 4 = q, so that a lane's numbers of a row are neighbours in
// memory. The tensor cores give it columns 2 q and 2 q + 1 of each tile of eight; so weights are packed in this order.
struct ColumnPlace {
  int tile, column;

  __host__ __device__ explicit ColumnPlace(int channel)
      : tile(channel / 16 * 2 + channel % 4 / 2), column(channel % 16 / 4 * 2 + channel % 2) {}
};
__host__ __device__ inline int channel_at(int tile, int column) {
  return tile / 2 * 16 + column / 2 * 4 + tile % 2 * 2 + column % 2;
}

// Four neighbouring channels in memory, of which the last may be none.
struct Four {
  float value[4];

  __device__ static Four load(const float* from, int left, bool aligned) {
    if (aligned) {
      if (left <= 0) return {};
      const float4 v = *reinterpret_cast<const float4*>(from);
      return {{v.x, v.y, v.z, v.w}};
    }
    Four result{};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j < left) result.value[j] = from[j];
    }
    return result;
  }
  __device__ void store(float* to, int left, bool aligned) const {
    if (aligned) {
      if (left > 0) *reinterpret_cast<float4*>(to) = make_float4(value[0], value[1], value[2], value[3]);
      return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j < left) to[j] = value[j];
    }
  }
};

// Rows (or columns) of an image, told apart by the taps that lie inside it: those at both ends differ, all between are alike.
struct EdgeKinds {
  int size = 0, lead = 0, trail = 0;

  EdgeKinds() = default;
  // taps(at): which lie inside, a bit each.
  template <typename Taps>
  EdgeKinds(int of_size, const Taps& taps) : size(of_size) {
    const auto middle = taps(size / 2);
    while (lead < size && taps(lead) != middle) ++lead;
    while (trail < size && taps(size - 1 - trail) != middle) ++trail;
  }
  __host__ __device__ bool all_differ() const { return size <= lead + 1 + trail; }
  __host__ __device__ int count() const { return all_differ() ? size : lead + 1 + trail; }
  __device__ int kind(int at) const {
    if (lead + trail == 0) return 0;
    if (at <= lead || all_differ()) return at;
    return at < size - trail ? lead : at - (size - trail) + lead + 1;
  }
  // One that is of this kind.
  __host__ __device__ int example(int kind) const {
    return kind <= lead || all_differ() ? kind : size - trail + kind - lead - 1;
  }
};

// A block's chunks of pixels and of packed weights in shared memory. Two units of 16 along the sum are a step of the product, whose
// weights are kStepBytes. kInParts: the weights of a chunk come in parts of as many steps. Those that are the same for every tile
// stay.
template <typename Rows, int kThreads, int kStages, int kStepBytes, bool kInParts>
class ProductStages {
 public:
  using Shape = typename Rows::Shape;

  __host__ __device__ static int parts(const Shape& shape) { return kInParts ? shape.parts : 1; }
  __host__ __device__ static bool weights_stay(const Shape& shape) {
    return shape.chunks == 1 && shape.phases == 1 && parts(shape) == 1;
  }
  // `units`: the most that a chunk has.
  static int weight_bytes(const Shape& shape, int units) {
    return divide_up(units, 2 * parts(shape)) * kStepBytes;
  }
  static std::size_t bytes(const Shape& shape, int units) {
    return static_cast<std::size_t>((weights_stay(shape) ? 1 : kStages) * weight_bytes(shape, units) +
                                    kStages * Rows::stage_bytes(shape));
  }

  // `packed`: the weights' rows along the sum, of row_bytes each, from the block's first column on.
  __device__ ProductStages(const Shape& shape, std::uint8_t* memory, int of_weight_bytes, const void* packed,
                           int row_bytes)
      : shape_(shape),
        weights_(memory),
        weight_bytes_(of_weight_bytes),
        stay_(weights_stay(shape)),
        pixels_(memory + (stay_ ? 1 : kStages) * of_weight_bytes),
        pixel_bytes_(Rows::stage_bytes(shape)),
        packed_(static_cast<const std::uint8_t*>(packed) + blockIdx.y * kStepBytes),
        row_bytes_(row_bytes) {}

  // Items are the parts of the chunks of the block's tiles.
  __device__ int tile_items() const { return shape_.chunks * parts(shape_); }
  __device__ int items() const {
    const int blocks = static_cast<int>(gridDim.x);
    return (shape_.tiles - static_cast<int>(blockIdx.x) + blocks - 1) / blocks * tile_items();
  }
  __device__ int tile(int item) const {
    return static_cast<int>(blockIdx.x) + item / tile_items() * static_cast<int>(gridDim.x);
  }
  __device__ int chunk(int item) const { return item / parts(shape_) % shape_.chunks; }
  __device__ bool ends_tile(int item) const { return (item + 1) % tile_items() == 0; }

  // The steps of an item's part, and the number of its first step within the chunk.
  __device__ int steps(const typename Rows::Chunk& of) const {
    return divide_up(of.units(), 2 * parts(shape_));
  }
  __device__ int first_step(int item, int steps) const { return item % parts(shape_) * steps; }

  __device__ void load(Rows& rows, int item, unsigned fill) const {
    if (item % parts(shape_) == 0)
      rows.load(tile(item), chunk(item), fill, pixels_ + pixel_stage(item) * pixel_bytes_);
    if (stay_ && item > 0) return;
    const typename Rows::Chunk of(rows, tile(item), chunk(item));
    const int count = steps(of), first = first_step(item, count);
    std::uint8_t* to = weights_ + weight_stage(item) * weight_bytes_;
    constexpr int kCopies = kStepBytes / 16;
#pragma unroll 3
    for (int i = static_cast<int>(threadIdx.x); i < count * kCopies; i += kThreads) {
      const long long row = of.weight_unit(2 * (first + i / kCopies)) / 2;
      copy_async<16>(to + i * 16, packed_ + row * row_bytes_ + i % kCopies * 16);
    }
  }
  __device__ const std::uint8_t* pixels(int item) const { return pixels_ + pixel_stage(item) * pixel_bytes_; }
  __device__ const std::uint8_t* weights(int item) const {
    return weights_ + weight_stage(item) * weight_bytes_;
  }

 private:
  __device__ int pixel_stage(int item) const { return item / parts(shape_) % kStages; }
  __device__ int weight_stage(int item) const { return stay_ ? 0 : item % kStages; }

  const Shape& shape_;
  std::uint8_t* weights_;
  int weight_bytes_;
  bool stay_;
  std::uint8_t* pixels_;
  int pixel_bytes_;
  const std::uint8_t* packed_;
  int row_bytes_;
};

// Calls load(item) and compute(item) for every item; kStages - 1 items are on their way while one is computed, and while prepare()
// does what must be done before the first.
template <int kStages, typename Load, typename Prepare, typename Compute>
__device__ inline void for_each_item(int items, const Load& load, const Prepare& prepare,
                                     const Compute& compute) {
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < items) load(i);
    commit_copies();
  }
  prepare();
  for (int item = 0; item < items; ++item) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    const int next = item + kStages - 1;
    if (next < items) load(next);
    commit_copies();
    compute(item);
  }
  wait_for_copies<0>();
  __syncthreads();
}

// How a product is shared out: rows of a warp, columns of a block.
struct ProductCut {
  int m_tiles = 0, columns = 0;

  // row_tiles(cut): its tiles of 64 · m_tiles rows, or 0 where the product cannot be cut so. The largest that give two
  // blocks to every multiprocessor of an H200, or else the smallest.
  template <typename RowTiles>
  ProductCut(int channels, const RowTiles& row_tiles) {
    constexpr int kEnoughBlocks = 256;
    const int most = forward_columns(channels);
    const ProductCut options[] = {{2, most}, {2, most / 2}, {1, most / 2}, {1, most / 4}, {2, 16}, {1, 16}};
    for (const ProductCut& option : options) {
      const int tiles = option.columns < 16 ? 0 : row_tiles(option);
      if (tiles == 0) continue;
      *this = option;
      if (tiles * divide_up(channels, columns) >= kEnoughBlocks) return;
    }
  }
  bool exists() const { return m_tiles != 0; }

 private:
  ProductCut(int of_m_tiles, int of_columns) : m_tiles(of_m_tiles), columns(of_columns) {}
};

// Blocks for so many tiles of rows: each takes as many as brings the grid to what an H200 holds at a time. What a lane sums in
// floats grows with them, so there are at most kMostTiles.
inline int row_blocks(int row_tiles, int column_blocks, int resident_blocks) {
  constexpr int kMultiprocessors = 132, kMostTiles = 32;
  const int each = divide_up(row_tiles * column_blocks, kMultiprocessors * resident_blocks);
  return divide_up(row_tiles, std::clamp(each, 1, kMostTiles));
}

// Calls launch(n_tiles, col_warps) with a block's columns as constants: a warp has at most kWarpColumns.
template <int kWarpColumns, typename Launch>
void with_columns(const ProductCut& cut, const Launch& launch) {
  if (cut.columns == 64)
    return launch(std::integral_constant<int, kWarpColumns / 8>(),
                  std::integral_constant<int, 64 / kWarpColumns>());
  if (cut.columns == 32) return launch(std::integral_constant<int, 4>(), std::integral_constant<int, 1>());
  return launch(std::integral_constant<int, 2>(), std::integral_constant<int, 1>());
}
// Likewise launch(m_tiles, n_tiles, col_warps).
template <int kWarpColumns, typename Launch>
void with_cut(const ProductCut& cut, const Launch& launch) {
  with_columns<kWarpColumns>(cut, [&](auto n_tiles, auto col_warps) {
    if (cut.m_tiles == 2) return launch(std::integral_constant<int, 2>(), n_tiles, col_warps);
    return launch(std::integral_constant<int, 1>(), n_tiles, col_warps);
  });
}

}  // namespace lowtide::cuda
