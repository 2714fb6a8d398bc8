#include "lowtide/engine/integer/tiled_weight_gradient.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/dense.h"
#include "lowtide/quant/pieces.h"

namespace lowtide::integer {
namespace {

// Of the error: no margin, rows of whole quads.
Plan error_plan(std::int64_t rows, std::int64_t cols) {
  Plan plan;
  plan.source_rows = plan.packed_rows = rows;
  plan.source_cols = plan.packed_cols = cols;
  return plan;
}

template <typename Sum>
LOWTIDE_SIMD void add_sums(const std::int32_t* from, std::int64_t n, Sum* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}

class WeightSums {
 public:
  WeightSums(const ConvShape& shape, const GradientCodes& codes, const TileKernels& tiles)
      : shape_(shape),
        codes_(codes),
        tiles_(tiles),
        plan_(unsplit(output_plan(shape))),
        inputs_(shape.weight[1]),
        outputs_(shape.weight[0] / shape.groups),
        pixel_(quads_for(inputs_) * kQuad),
        lanes_(shape.weight[3] * pixel_),
        vectors_(vectors_for(lanes_)),
        row_quads_(quads_for(plan_.out_cols)),
        rows_at_once_(rows_at_once()),
        images_at_once_(images_at_once()) {}

  TiledSums sums() const {
    const std::int64_t lane_count = shape_.groups * group_lane_sums();
    std::vector<std::int64_t> products(static_cast<std::size_t>(tile_sums()));
    std::vector<std::int64_t> lane_sums(static_cast<std::size_t>(lane_count));
    std::mutex adding;  // the order does not matter to sums of integers
    const std::int64_t bands = (plan_.out_rows + rows_at_once_ - 1) / rows_at_once_;
    const std::int64_t batches = (shape_.input[0] + images_at_once_ - 1) / images_at_once_;
    const std::int64_t pieces = batches * bands;
    const bool few =
        shape_.macs() * shape_.input[0] < 2'000'000;  // as elsewhere, no thread is woken for those
    Pieces(pieces, few ? pieces : 1).share_out([&](Pieces::Share& share) {
      const TileUse use(tiles_);
      thread_local Scratch<std::int32_t> product_memory, lane_memory;
      std::int32_t* my_products = product_memory.at_least(tile_sums());
      std::int32_t* my_lanes = lane_memory.at_least(lane_count);
      std::int64_t terms = 0;
      const auto flush = [&] {
        if (terms == 0) return;
        const std::lock_guard lock(adding);
        add_sums(my_products, tile_sums(), products.data());
        add_sums(my_lanes, lane_count, lane_sums.data());
        terms = 0;
      };
      while (const std::optional<std::int64_t> piece = share.next()) {
        const Piece part = piece_at(*piece / bands, *piece % bands);
        if (terms + part.terms(plan_) > kMostTerms) flush();
        if (terms == 0) {
          std::fill_n(my_products, tile_sums(), 0);
          std::fill_n(my_lanes, lane_count, 0);
        }
        terms += part.terms(plan_);
        for (std::int64_t group = 0; group < shape_.groups; ++group) {
          add(part, group, my_products + group * group_tiles() * kTileSums,
              my_lanes + group * group_lane_sums());
        }
      }
      flush();
    });
    return {in_order(products), input_sums(lane_sums)};
  }

 private:
  static constexpr std::int64_t kTileSums = kLanes * kLanes;

  // Output rows of some images.
  struct Piece {
    std::int64_t first_image, images, first_row, rows;
    std::int64_t terms(const Plan& plan) const { return images * rows * plan.out_cols; }
  };

  static Plan unsplit(Plan plan) {
    plan.column_split = 1;
    return plan;
  }

  std::int64_t places() const { return shape_.weight[2] * shape_.weight[3]; }
  std::int64_t planes() const { return vectors_for(outputs_); }  // sixteens of them
  std::int64_t streams() const { return shape_.weight[2] * vectors_; }
  std::int64_t group_tiles() const { return planes() * streams(); }
  std::int64_t group_lane_sums() const { return streams() * kLanes; }
  std::int64_t tile_sums() const { return shape_.groups * group_tiles() * kTileSums; }

  // Packed rows are sorted by their remainder, so that those which a kernel row meets are neighbours.
  std::int64_t rows_of_remainder(std::int64_t out_rows) const {
    return out_rows + (shape_.weight[2] - 1) / plan_.row_step;
  }
  std::int64_t packed_row(std::int64_t row, const Piece& piece) const {
    return row % plan_.row_step * rows_of_remainder(piece.rows) + row / plan_.row_step;
  }
  std::int64_t row_bytes() const { return row_quads_ * vectors_ * kVectorBytes; }
  std::int64_t image_lanes(std::int64_t out_rows) const {
    return rows_of_remainder(out_rows) * std::min(plan_.row_step, shape_.weight[2]) * row_bytes();
  }
  std::int64_t image_planes(std::int64_t out_rows) const {
    return planes() * kLanes * out_rows * row_quads_ * kQuad;
  }

  // Both operands of a piece are to stay in a second-level cache, of which this is an eighth.
  static constexpr std::int64_t kCacheBytes = 256 * 1024;

  std::int64_t rows_at_once() const {
    const std::int64_t row = image_planes(1) + std::min(plan_.row_step, shape_.weight[2]) * row_bytes();
    const std::int64_t terms = kMostTerms / std::max<std::int64_t>(1, plan_.out_cols);
    const std::int64_t fit = std::min(kCacheBytes / row, terms);
    // A few large images are cut so that several cores find work.
    const std::int64_t share = shape_.input[0] >= 8
                                   ? plan_.out_rows
                                   : std::max<std::int64_t>(4, plan_.out_rows * shape_.input[0] / 8);
    return std::clamp<std::int64_t>(std::min(fit, share), 1, plan_.out_rows);
  }

  std::int64_t images_at_once() const {
    if (rows_at_once_ < plan_.out_rows) return 1;
    const std::int64_t image = image_planes(plan_.out_rows) + image_lanes(plan_.out_rows);
    const std::int64_t terms = kMostTerms / std::max<std::int64_t>(1, plan_.out_rows * plan_.out_cols);
    const std::int64_t share = std::max<std::int64_t>(1, shape_.input[0] / 8);
    return std::clamp<std::int64_t>(std::min({kCacheBytes / image, terms, share}), 1, shape_.input[0]);
  }

  Piece piece_at(std::int64_t batch, std::int64_t band) const {
    const std::int64_t image = batch * images_at_once_, row = band * rows_at_once_;
    return {image, std::min(images_at_once_, shape_.input[0] - image), row,
            std::min(rows_at_once_, plan_.out_rows - row)};
  }

  void add(const Piece& piece, std::int64_t group, std::int32_t* sums, std::int32_t* lane_sums) const {
    thread_local Scratch<std::uint8_t> plane_memory;
    thread_local Scratch<std::int8_t> lane_memory;
    std::uint8_t* planes_of = plane_memory.at_least(piece.images * image_planes(piece.rows));
    std::int8_t* lanes_of = lane_memory.at_least(piece.images * image_lanes(piece.rows));
    for (std::int64_t i = 0; i < piece.images; ++i) {
      pack_error(piece, group, piece.first_image + i, planes_of + i * image_planes(piece.rows));
      pack_input(piece, group, piece.first_image + i, lanes_of + i * image_lanes(piece.rows), lane_sums);
    }
    multiply(piece, planes_of, lanes_of, sums);
  }

  void pack_error(const Piece& piece, std::int64_t group, std::int64_t item, std::uint8_t* to) const {
    const std::int64_t step = shape_.weight[0];
    const Plan plan = error_plan(piece.rows, plan_.out_cols);
    const std::uint8_t* from =
        codes_.error + (item * plan_.out_rows + piece.first_row) * plan_.out_cols * step + group * outputs_;
    pack_planes(plan, PlanarLayout(plan, 1, row_quads_), {from, outputs_, step, codes_.shifts.error},
                reinterpret_cast<std::int8_t*>(to));
  }

  void pack_input(const Piece& piece, std::int64_t group, std::int64_t item, std::int8_t* to,
                  std::int32_t* lane_sums) const {
    thread_local Scratch<std::int8_t> pixel_memory;
    thread_local Scratch<std::int32_t> sum_memory;
    const std::int64_t rows = (piece.rows - 1) * plan_.row_step + shape_.weight[2];
    const std::int64_t step = inputs_ * shape_.groups, pitch = plan_.pitch() * pixel_;
    std::int8_t* pixels = pixel_memory.at_least(rows * pitch + kVectorBytes);  // whole vectors are read
    std::int32_t* sums = sum_memory.at_least(vectors_ * kLanes);
    pack_pixels(plan_,
                {codes_.input + item * plan_.source_rows * plan_.source_cols * step + group * inputs_,
                 inputs_, step, codes_.shifts.input},
                piece.first_row * plan_.row_step, rows, pixels);
    for (std::int64_t row = 0; row < rows; ++row) {
      tiles_.pack_lanes({pixels + row * pitch, shape_.stride[1] * pixel_, plan_.out_cols, vectors_,
                         to + packed_row(row, piece) * row_bytes(), sums});
      add_lane_sums(row, piece, sums, lane_sums);
    }
  }

  // A packed row's sums count for every kernel row that meets it.
  void add_lane_sums(std::int64_t row, const Piece& piece, const std::int32_t* sums, std::int32_t* to) const {
    const std::int64_t lanes = vectors_ * kLanes;
    for (std::int64_t kernel_row = 0; kernel_row < shape_.weight[2]; ++kernel_row) {
      const std::int64_t into = row - kernel_row;
      if (into < 0 || into % plan_.row_step != 0 || into / plan_.row_step >= piece.rows) continue;
      add_sums(sums, lanes, to + kernel_row * lanes);
    }
  }

  // sums[sixteen planes][kernel row][vector][16][16]
  void multiply(const Piece& piece, const std::uint8_t* planes_of, const std::int8_t* lanes_of,
                std::int32_t* sums) const {
    const std::int8_t* stream[kMostPlaneStreams];
    PlaneTile tile;
    tile.plane_step = piece.rows * row_quads_ * kQuad;
    tile.stream = stream;
    tile.stream_step = vectors_ * kVectorBytes;
    tile.quads = piece.rows * row_quads_;
    tile.items = piece.images;
    tile.planes_item = image_planes(piece.rows);
    tile.stream_item = image_lanes(piece.rows);
    for (std::int64_t block = 0; block < planes(); ++block) {
      tile.rows = static_cast<int>(std::min<std::int64_t>(kLanes, outputs_ - block * kLanes));
      tile.planes = planes_of + block * kLanes * tile.plane_step;
      for (std::int64_t first = 0; first < streams(); first += kMostPlaneStreams) {
        tile.streams = static_cast<int>(std::min<std::int64_t>(kMostPlaneStreams, streams() - first));
        for (int s = 0; s < tile.streams; ++s) {
          const std::int64_t row = (first + s) / vectors_, vector = (first + s) % vectors_;
          stream[s] = lanes_of + packed_row(row, piece) * row_bytes() + vector * kVectorBytes;
        }
        tile.sum = sums + (block * streams() + first) * kTileSums;
        tiles_.plane_tile(tile);
      }
    }
  }

  // Tiles of sums become [output channel][kernel position][input channel].
  std::vector<std::int64_t> in_order(const std::vector<std::int64_t>& tiles) const {
    std::vector<std::int64_t> result(static_cast<std::size_t>(shape_.weight[0] * places() * inputs_));
    std::int64_t* to = result.data();
    for (std::int64_t o = 0; o < shape_.weight[0]; ++o) {
      const std::int64_t output = o % outputs_, block = o / outputs_ * planes() + output / kLanes;
      for (std::int64_t place = 0; place < places(); ++place, to += inputs_) {
        const std::int64_t row = place / shape_.weight[3], first = place % shape_.weight[3] * pixel_;
        for (std::int64_t c = 0; c < inputs_;) {
          const std::int64_t vector = row * vectors_ + (first + c) / kLanes, lane = (first + c) % kLanes;
          const std::int64_t count = std::min(kLanes - lane, inputs_ - c);
          std::copy_n(
              tiles.data() + ((block * streams() + vector) * kLanes + output % kLanes) * kLanes + lane, count,
              to + c);
          c += count;
        }
      }
    }
    return result;
  }

  // Σ qx, from sums of codes less their shift.
  std::vector<std::int64_t> input_sums(const std::vector<std::int64_t>& lane_sums) const {
    const std::vector<std::int64_t> positions = met_positions(shape_);
    std::vector<std::int64_t> result;
    for (std::int64_t place = 0; place < places(); ++place) {
      const std::int64_t row = place / shape_.weight[3], first = place % shape_.weight[3] * pixel_;
      const std::int64_t shifts = positions[static_cast<std::size_t>(place)] * codes_.shifts.input;
      for (std::int64_t c = 0; c < shape_.input[1]; ++c) {
        const std::int64_t of_group = c / inputs_ * group_lane_sums() + row * vectors_ * kLanes;
        result.push_back(lane_sums[static_cast<std::size_t>(of_group + first + c % inputs_)] + shifts);
      }
    }
    return result;
  }

  const ConvShape& shape_;
  const GradientCodes codes_;
  const TileKernels& tiles_;
  const Plan plan_;
  const std::int64_t inputs_, outputs_;  // of a group
  const std::int64_t pixel_, lanes_,
      vectors_;                   // bytes of a packed pixel; a kernel row's lanes, and their vectors
  const std::int64_t row_quads_;  // of an output row
  const std::int64_t rows_at_once_, images_at_once_;
};

}  // namespace

TiledSums tiled_weight_sums(const ConvShape& shape, const GradientCodes& codes, const TileKernels& tiles) {
  return WeightSums(shape, codes, tiles).sums();
}

}  // namespace lowtide::integer
