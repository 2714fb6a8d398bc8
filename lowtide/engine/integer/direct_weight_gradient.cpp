#include <vector>

#include "lowtide/base/parallel.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/conv_methods.h"
#include "lowtide/engine/integer/direct_walk.h"
#include "lowtide/engine/integer/gradient_sums.h"
#include "lowtide/engine/integer/tap_sums.h"
#include "lowtide/engine/integer/tuning.h"
#include "lowtide/engine/integer/wide_sums.h"

// dw[o][c][tap] is a sum over all pixels of all images: the error of channel o against the pixels of
// input channel c that the tap reads. Lanes are output channels, quads neighbouring columns of a row; what a tap reads is a
// stream through the input's channel planes. Every (input channel, kernel row) with all its columns is one base stream.
// Sums of integers do not depend on the order, so neither does the result on the number of threads.

namespace lowtide::integer {
namespace {

struct Geometry {
  const ConvShape& shape;
  Plan plan = output_plan(shape);
  std::int64_t items = shape.input[0];
  std::int64_t inputs = shape.weight[1], outputs = shape.weight[0] / shape.groups;  // of a group
  std::int64_t kernel_rows = shape.weight[2], kernel_cols = shape.weight[3];
  std::int64_t quads = (plan.out_cols + kQuad - 1) / kQuad;
  std::int64_t vectors = vectors_for(outputs);
  PlanarLayout planes{plan, kernel_cols, quads};

  // Unsplit columns of a 3-wide kernel are one stream at three column offsets; else each kernel column is its own stream.
  bool reads_offsets() const { return kernel_cols == 3 && plan.column_split == 1; }
  std::int64_t column_offsets() const { return reads_offsets() ? 3 : 1; }
  std::int64_t streams() const { return inputs * kernel_rows * (reads_offsets() ? 1 : kernel_cols); }
  std::int64_t image_planes() const { return inputs * planes.plane_bytes(); }
  std::int64_t image_error() const { return plan.out_rows * quads * vectors * kVectorBytes; }

  // Byte of an image's planes at which a base stream starts; its sums are those of (channel, row, column).
  std::int64_t stream_offset(std::int64_t stream) const {
    const std::int64_t cols = reads_offsets() ? 1 : kernel_cols;
    const std::int64_t col = stream % cols, row = stream / cols % kernel_rows,
                       channel = stream / cols / kernel_rows;
    return channel * planes.plane_bytes() + row * planes.pitch() + planes.column(col);
  }
};

// Both operands of some images as the tiles read them.
struct Packed {
  Scratch<std::int8_t> planes;
  Scratch<std::uint8_t> error;
};

// The codes of one group: its first channel in each tensor.
struct GroupCodes {
  const std::uint8_t* input;
  const std::uint8_t* error;
};

class GroupSums {
 public:
  GroupSums(const Geometry& g, std::int32_t code_bias, const TileKernels& tiles)
      : g_(g), code_bias_(code_bias), tiles_(tiles), blocks_(vector_blocks(g.vectors)), list_(list_tiles()) {}

  // sum[(stream · offsets + offset) · vectors · 16 + output]
  KeptArray<std::int64_t> sums(const GroupCodes& codes) const {
    return g_.items / images_at_once() >= kEnoughTasks ? by_images(codes) : by_tiles(codes);
  }

 private:
  struct Tile {
    VectorBlock block;
    std::int64_t first_stream;
    int streams;
  };

  std::int64_t count() const { return g_.streams() * g_.column_offsets() * g_.vectors * kLanes; }
  KeptArray<std::int64_t> zeros() const {
    auto sums = kept_array<std::int64_t>(count());
    std::fill_n(sums.get(), count(), 0);
    return sums;
  }

  std::int64_t grain(std::int64_t tasks) const { return grain_for(g_.shape.macs() * g_.items, tasks); }

  std::int64_t images_at_once() const {
    const std::int64_t fit = kGradientPackedBytes / (g_.image_planes() + g_.image_error());
    const std::int64_t pixels = g_.plan.out_rows * g_.plan.out_cols;
    return std::clamp<std::int64_t>(std::max(fit, (kGradientTerms + pixels - 1) / pixels), 1, g_.items);
  }

  // Every thread packs some images and sums all tiles over them while they are in its cache.
  KeptArray<std::int64_t> by_images(const GroupCodes& codes) const {
    WideSums all(count());
    const std::int64_t at_once = images_at_once(), tasks = (g_.items + at_once - 1) / at_once;
    TaskQueues(tasks, grain(tasks)).run([&](TaskQueues::Worker& worker) {
      thread_local Packed packed;
      reserve(packed, at_once);
      const KeptArray<std::int64_t> mine = zeros();
      while (const std::optional<std::int64_t> task = worker.next_task()) {
        const std::int64_t first = *task * at_once, count = std::min(at_once, g_.items - first);
        for (std::int64_t i = 0; i < count; ++i) pack(codes, first + i, packed, i);
        for (const Tile& tile : list_) work(tile, packed, count, mine.get());
      }
      all.add(mine.get());
    });
    return all.take();
  }

  // Few large images: all of them are packed, then every thread sums some tiles.
  KeptArray<std::int64_t> by_tiles(const GroupCodes& codes) const {
    Packed packed;
    reserve(packed, g_.items);
    parallel_for(g_.items, grain(g_.items), [&](std::int64_t item) { pack(codes, item, packed, item); });
    KeptArray<std::int64_t> total = zeros();
    const auto tiles = static_cast<std::int64_t>(list_.size());
    parallel_for(tiles, grain(tiles), [&](std::int64_t i) {
      work(list_[static_cast<std::size_t>(i)], packed, g_.items, total.get());
    });
    return total;
  }

  void reserve(Packed& packed, std::int64_t images) const {
    packed.planes.at_least(images * g_.image_planes());
    packed.error.at_least(images * g_.image_error());
  }

  // Image `item` of the batch becomes the one at `slot`.
  void pack(const GroupCodes& codes, std::int64_t item, const Packed& packed, std::int64_t slot) const {
    const std::int64_t in_step = g_.inputs * g_.shape.groups, out_step = g_.outputs * g_.shape.groups;
    const std::int64_t in_pixels = g_.plan.source_rows * g_.plan.source_cols;
    pack_planes(g_.plan, g_.planes,
                {.code = codes.input + item * in_pixels * in_step,
                 .channels = g_.inputs,
                 .pixel_step = in_step,
                 .code_bias = code_bias_},
                packed.planes.get() + slot * g_.image_planes());
    const std::int64_t out_pixels = g_.plan.out_rows * g_.plan.out_cols;
    std::uint8_t* error = packed.error.get() + slot * g_.image_error();
    for (const VectorBlock& block : blocks_) {
      pack_columns({.code = codes.error + item * out_pixels * out_step + block.first * kLanes,
                    .channels = g_.outputs - block.first * kLanes,
                    .pixel_step = out_step,
                    .code_bias = 0},
                   g_.plan.out_rows, g_.plan.out_cols, block.vectors, error);
      error += g_.plan.out_rows * g_.quads * block.vectors * kVectorBytes;
    }
  }

  KeptVector<Tile> list_tiles() const {
    KeptVector<Tile> tiles;
    for (const VectorBlock& block : blocks_) {
      const std::int64_t most = tiles_.most_streams(block.vectors, static_cast<int>(g_.column_offsets()));
      for (std::int64_t first = 0; first < g_.streams(); first += most) {
        tiles.push_back({block, first, static_cast<int>(std::min(most, g_.streams() - first))});
      }
    }
    return tiles;
  }

  void work(const Tile& tile, const Packed& packed, std::int64_t images, std::int64_t* total) const {
    const std::int64_t count = tile.streams * g_.column_offsets() * tile.block.vectors * kLanes;
    thread_local Scratch<std::int32_t> sum_memory;
    std::vector<const std::int8_t*> streams(static_cast<std::size_t>(tile.streams));
    GradientTile part;
    part.stream = streams.data();
    part.streams = tile.streams;
    part.offsets = static_cast<int>(g_.column_offsets());
    part.quads = g_.quads;
    part.pitch = g_.plan.row_step * g_.planes.pitch();
    part.error_pitch = g_.quads * tile.block.vectors * kVectorBytes;
    const std::int64_t row_terms = g_.plan.out_cols;
    // Signed times unsigned: half of what kMostTerms allows for is left unused.
    NarrowSums sums(sum_memory.at_least(count), count,
                    [&](const std::int32_t* sum) { flush(tile, sum, total); });
    for (std::int64_t item = 0; item < images; ++item) {
      for (std::int64_t row = 0; row < g_.plan.out_rows; row += part.rows) {
        part.rows = std::min(sums.room_for(row_terms) / row_terms, g_.plan.out_rows - row);
        part.sum = sums.add(part.rows * row_terms);
        for (int s = 0; s < tile.streams; ++s) {
          streams[static_cast<std::size_t>(s)] = packed.planes.get() + item * g_.image_planes() +
                                                 row * part.pitch + g_.stream_offset(tile.first_stream + s);
        }
        part.error = packed.error.get() + item * g_.image_error() +
                     (tile.block.first * g_.plan.out_rows * g_.quads) * kVectorBytes + row * part.error_pitch;
        tiles_.gradient_tile(part, tile.block.vectors);
      }
    }
  }

  void flush(const Tile& tile, const std::int32_t* sum, std::int64_t* total) const {
    const std::int64_t lanes = tile.block.vectors * kLanes;
    for (std::int64_t i = 0; i < tile.streams * g_.column_offsets(); ++i) {
      std::int64_t* to =
          total + ((tile.first_stream * g_.column_offsets() + i) * g_.vectors + tile.block.first) * kLanes;
      add_sums(sum + i * lanes, lanes, to);
    }
  }

  const Geometry& g_;
  const std::int32_t code_bias_;  // of the input's codes
  const TileKernels& tiles_;
  const std::vector<VectorBlock> blocks_;
  const KeptVector<Tile> list_;
};

}  // namespace

at::Tensor direct_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                                  const TileKernels& tiles) {
  at::Tensor dw = empty_weight_gradient(dy, shape);
  const std::uint8_t* input = x.code.data_ptr<std::uint8_t>();
  const std::uint8_t* error = dy.code.data_ptr<std::uint8_t>();
  const Geometry g{shape};
  const std::int64_t taps = shape.weight[2] * shape.weight[3], padded = g.vectors * kLanes;
  const CodeBiases biases{.error = 0, .input = Affine::of(x).code_bias};
  TapSums input_sums(x, shape, Covered::kInputs);
  input_sums.add_all();
  const GradientSums edges(dy, x, shape, biases, input_sums.by_tap());
  const GroupSums sums(g, biases.input, tiles);
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    const KeptArray<std::int64_t> total = sums.sums({input + group * g.inputs, error + group * g.outputs});
    write_weight_gradient(
        shape, edges, group,
        StridedSums{.sum = total.get(), .output_step = 1, .tap_step = padded, .input_step = taps * padded},
        dw);
  }
  return dw;
}

}  // namespace lowtide::integer
