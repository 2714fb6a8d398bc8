#include <algorithm>
#include <vector>

#include "lowtide/base/parallel.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/conv_methods.h"
#include "lowtide/engine/integer/direct_walk.h"
#include "lowtide/engine/integer/gradient_sums.h"
#include "lowtide/engine/integer/tap_sums.h"
#include "lowtide/engine/integer/tuning.h"
#include "lowtide/engine/integer/wide_sums.h"

// A weight gradient's sums by a matrix unit.
//
// The sum runs over output pixels, row by row. The error becomes channel planes, one for each output channel: the rows of
// the left matrix. Lanes are the taps of a kernel row and their input channels, which are neighbours where the input is packed
// as whole pixels; at the next output pixel they begin a stride further on. So one packed row of input, in quads of output
// pixels, serves every kernel row that reads it, and the quads of neighbouring rows follow each other as in the planes.

namespace lowtide::integer {
namespace {

// Sums lie in tiles, [group][block of sixteen outputs][kernel row][vector of lanes][16 outputs][16 lanes].
struct LaneTiles {
  explicit LaneTiles(const ConvShape& shape);

  std::int64_t groups, inputs, outputs;  // the last two of a group
  std::int64_t kernel_rows, kernel_cols;
  std::int64_t pixel;    // bytes of a packed pixel: a channel each, to whole quads
  std::int64_t vectors;  // of a kernel row's lanes
  std::int64_t blocks;   // of a group's outputs

  std::int64_t streams() const { return kernel_rows * vectors; }
  std::int64_t group_lanes() const { return streams() * kLanes; }
  std::int64_t group_sums() const { return blocks * streams() * kLanes * kLanes; }
  std::int64_t product_count() const { return groups * group_sums(); }
  std::int64_t lane_count() const { return groups * group_lanes(); }
};

struct TiledSums {
  explicit TiledSums(const ConvShape& shape)
      : tiles(shape), all(tiles.product_count() + tiles.lane_count()) {}

  const LaneTiles tiles;
  WideSums all;

  // Σ (q - bias)(qx - bias)
  const std::int64_t* products() const { return all.get(); }
  // Σ (qx - bias), [group][kernel row][vector][16]
  const std::int64_t* lanes() const { return all.get() + tiles.product_count(); }

  // One group's products.
  struct Group {
    const LaneTiles& tiles;
    const std::int64_t* sum;

    // Calls take(first, count, sum, step) for the input channels that share a tile.
    template <typename Take>
    void runs(std::int64_t output, std::int64_t tap, std::int64_t inputs, const Take& take) const {
      const std::int64_t row = tap / tiles.kernel_cols, first = tap % tiles.kernel_cols * tiles.pixel;
      const std::int64_t stream = output / kLanes * tiles.streams() + row * tiles.vectors;
      for (std::int64_t c = 0, count = 0; c < inputs; c += count) {
        const std::int64_t vector = (first + c) / kLanes, lane = (first + c) % kLanes;
        count = std::min(kLanes - lane, inputs - c);
        take(c, count, sum + ((stream + vector) * kLanes + output % kLanes) * kLanes + lane, 1);
      }
    }
  };
  Group of(std::int64_t group) const { return {tiles, products() + group * tiles.group_sums()}; }

  // Σ qx over the pixels that each tap covers, [tap][input channel].
  KeptVector<std::int64_t> input_sums(const ConvShape& shape, std::int32_t bias) const;
};

LaneTiles::LaneTiles(const ConvShape& shape)
    : groups(shape.groups),
      inputs(shape.weight[1]),
      outputs(shape.weight[0] / shape.groups),
      kernel_rows(shape.weight[2]),
      kernel_cols(shape.weight[3]),
      pixel(quads_for(inputs) * kQuad),
      vectors(vectors_for(kernel_cols * pixel)),
      blocks(vectors_for(outputs)) {}

KeptVector<std::int64_t> TiledSums::input_sums(const ConvShape& shape, std::int32_t bias) const {
  const std::vector<std::int64_t> pixels = covered_pixels(shape);
  KeptVector<std::int64_t> result;
  result.reserve(pixels.size() * static_cast<std::size_t>(tiles.groups * tiles.inputs));
  for (std::size_t tap = 0; tap < pixels.size(); ++tap) {
    const auto at = static_cast<std::int64_t>(tap);
    const std::int64_t row = at / tiles.kernel_cols, col = at % tiles.kernel_cols;
    for (std::int64_t group = 0; group < tiles.groups; ++group) {
      const std::int64_t* sum = lanes() + group * tiles.group_lanes() + row * tiles.vectors * kLanes;
      for (std::int64_t c = 0; c < tiles.inputs; ++c) {
        result.push_back(sum[col * tiles.pixel + c] + pixels[tap] * bias);
      }
    }
  }
  return result;
}

// How the error is packed: without a margin.
Plan error_plan(std::int64_t rows, std::int64_t cols) {
  Plan plan;
  plan.source_rows = plan.packed_rows = rows;
  plan.source_cols = plan.packed_cols = cols;
  return plan;
}

Plan input_plan(const ConvShape& shape) {
  Plan plan = output_plan(shape);
  plan.column_split = 1;
  return plan;
}

class WeightSums {
 public:
  WeightSums(const ConvShape& shape, const GradientCodes& codes, const TileKernels& kernels)
      : shape_(shape),
        codes_(codes),
        kernels_(kernels),
        tiles_(shape),
        plan_(input_plan(shape)),
        row_quads_(quads_for(plan_.out_cols)),
        rows_at_once_(rows_at_once()),
        images_at_once_(images_at_once()) {}

  // First the sums of products, then those of lanes. Each has as many terms as the others.
  void add_to(WideSums& total) const {
    const std::int64_t bands = (plan_.out_rows + rows_at_once_ - 1) / rows_at_once_;
    const std::int64_t tasks = (shape_.input[0] + images_at_once_ - 1) / images_at_once_ * bands;
    const std::int64_t grain = grain_for(shape_.macs() * shape_.input[0], tasks);
    TaskQueues(tasks, grain).run([&](TaskQueues::Worker& worker) {
      const TileUse use(kernels_);
      thread_local Scratch<std::int32_t> memory;
      NarrowSums sums(memory.at_least(total.count()), total.count(),
                      [&](const std::int32_t* mine) { total.add(mine); });
      while (const std::optional<std::int64_t> index = worker.next_task()) {
        const Task task = task_at(*index / bands, *index % bands);
        std::int32_t* products = sums.add(task.terms(plan_));
        std::int32_t* lanes = products + tiles_.product_count();
        for (std::int64_t group = 0; group < tiles_.groups; ++group) {
          add(task, group, products + group * tiles_.group_sums(), lanes + group * tiles_.group_lanes());
        }
      }
    });
  }

 private:
  // Output rows of some images.
  struct Task {
    std::int64_t first_image, images, first_row, rows;
    std::int64_t terms(const Plan& plan) const { return images * rows * plan.out_cols; }
  };

  // Rows of the input are packed in order of their remainder by the stride: a kernel row reads rows of one remainder alone,
  // and these lie side by side.
  std::int64_t remainders() const { return std::min(plan_.row_step, tiles_.kernel_rows); }
  std::int64_t rows_of_remainder(std::int64_t out_rows) const {
    return out_rows + (tiles_.kernel_rows - 1) / plan_.row_step;
  }
  std::int64_t packed_row(std::int64_t row, const Task& task) const {
    return row % plan_.row_step * rows_of_remainder(task.rows) + row / plan_.row_step;
  }
  std::int64_t row_bytes() const { return row_quads_ * tiles_.vectors * kVectorBytes; }
  std::int64_t image_lanes(std::int64_t out_rows) const {
    return rows_of_remainder(out_rows) * remainders() * row_bytes();
  }
  std::int64_t image_planes(std::int64_t out_rows) const {
    return tiles_.blocks * kLanes * out_rows * row_quads_ * kQuad;
  }

  std::int64_t rows_at_once() const {
    const std::int64_t row = image_planes(1) + remainders() * row_bytes();
    const std::int64_t fit = std::min(kPackedBytes / row, kMostTerms / plan_.out_cols);
    const std::int64_t rows_per_task =
        std::max(kLeastBandRows, plan_.out_rows * shape_.input[0] / kEnoughTasks);
    return std::clamp<std::int64_t>(std::min(fit, rows_per_task), 1, plan_.out_rows);
  }

  std::int64_t images_at_once() const {
    if (rows_at_once_ < plan_.out_rows) return 1;
    const std::int64_t image = image_planes(plan_.out_rows) + image_lanes(plan_.out_rows);
    const std::int64_t terms = kMostTerms / (plan_.out_rows * plan_.out_cols);
    const std::int64_t images_per_task = shape_.input[0] / kEnoughTasks;
    return std::clamp<std::int64_t>(std::min({kPackedBytes / image, terms, images_per_task}), 1,
                                    shape_.input[0]);
  }

  Task task_at(std::int64_t batch, std::int64_t band) const {
    const std::int64_t image = batch * images_at_once_, row = band * rows_at_once_;
    return {.first_image = image,
            .images = std::min(images_at_once_, shape_.input[0] - image),
            .first_row = row,
            .rows = std::min(rows_at_once_, plan_.out_rows - row)};
  }

  void add(const Task& task, std::int64_t group, std::int32_t* products, std::int32_t* lane_sums) const {
    thread_local Scratch<std::uint8_t> plane_memory;
    thread_local Scratch<std::int8_t> lane_memory;
    std::uint8_t* planes = plane_memory.at_least(images_at_once_ * image_planes(rows_at_once_));
    std::int8_t* lanes = lane_memory.at_least(images_at_once_ * image_lanes(rows_at_once_));
    for (std::int64_t i = 0; i < task.images; ++i) {
      pack_error(task, group, task.first_image + i, planes + i * image_planes(task.rows));
      pack_input(task, group, task.first_image + i, lanes + i * image_lanes(task.rows), lane_sums);
    }
    multiply(task, planes, lanes, products);
  }

  void pack_error(const Task& task, std::int64_t group, std::int64_t item, std::uint8_t* to) const {
    const std::int64_t step = shape_.weight[0];
    const Plan plan = error_plan(task.rows, plan_.out_cols);
    const std::uint8_t* from = codes_.error + group * tiles_.outputs +
                               (item * plan_.out_rows + task.first_row) * plan_.out_cols * step;
    pack_planes(
        plan, PlanarLayout(plan, 1, row_quads_),
        {.code = from, .channels = tiles_.outputs, .pixel_step = step, .code_bias = codes_.biases.error},
        reinterpret_cast<std::int8_t*>(to));
  }

  void pack_input(const Task& task, std::int64_t group, std::int64_t item, std::int8_t* to,
                  std::int32_t* lane_sums) const {
    thread_local Scratch<std::int8_t> pixel_memory;
    thread_local Scratch<std::int32_t> sum_memory;
    const std::int64_t rows = (task.rows - 1) * plan_.row_step + tiles_.kernel_rows;
    const std::int64_t step = tiles_.inputs * tiles_.groups, pitch = plan_.pitch() * tiles_.pixel;
    const std::int64_t most_rows = (rows_at_once_ - 1) * plan_.row_step + tiles_.kernel_rows;
    std::int8_t* pixels = pixel_memory.at_least(most_rows * pitch + kVectorBytes);  // whole vectors are read
    std::int32_t* sums = sum_memory.at_least(tiles_.vectors * kLanes);
    const std::uint8_t* from = codes_.input + item * plan_.source_rows * plan_.source_cols * step;
    pack_pixels(plan_,
                {.code = from + group * tiles_.inputs,
                 .channels = tiles_.inputs,
                 .pixel_step = step,
                 .code_bias = codes_.biases.input},
                task.first_row * plan_.row_step, rows, pixels);
    for (std::int64_t row = 0; row < rows; ++row) {
      if (row % plan_.row_step >= tiles_.kernel_rows) continue;  // steps are wider than the kernel
      kernels_.pack_lanes({.from = pixels + row * pitch,
                           .step = shape_.stride[1] * tiles_.pixel,
                           .pixels = plan_.out_cols,
                           .vectors = tiles_.vectors,
                           .to = to + packed_row(row, task) * row_bytes(),
                           .sum = sums});
      add_lane_sums(row, task, sums, lane_sums);
    }
  }

  // A packed row's sums count for every kernel row that covers it.
  void add_lane_sums(std::int64_t row, const Task& task, const std::int32_t* sums, std::int32_t* to) const {
    const std::int64_t lanes = tiles_.vectors * kLanes;
    for (std::int64_t kernel_row = 0; kernel_row < tiles_.kernel_rows; ++kernel_row) {
      const std::int64_t into = row - kernel_row;
      if (into < 0 || into % plan_.row_step != 0 || into / plan_.row_step >= task.rows) continue;
      add_sums(sums, lanes, to + kernel_row * lanes);
    }
  }

  void multiply(const Task& task, const std::uint8_t* planes, const std::int8_t* lanes,
                std::int32_t* products) const {
    const std::int8_t* stream[kMostPlaneStreams];
    PlaneTile tile;
    tile.plane_step = task.rows * row_quads_ * kQuad;
    tile.stream = stream;
    tile.stream_step = tiles_.vectors * kVectorBytes;
    tile.quads = task.rows * row_quads_;
    tile.items = task.images;
    tile.planes_item = image_planes(task.rows);
    tile.stream_item = image_lanes(task.rows);
    for (std::int64_t block = 0; block < tiles_.blocks; ++block) {
      tile.planes = planes + block * kLanes * tile.plane_step;
      tile.rows = static_cast<int>(std::min<std::int64_t>(kLanes, tiles_.outputs - block * kLanes));
      for (std::int64_t first = 0; first < tiles_.streams(); first += kMostPlaneStreams) {
        tile.streams = static_cast<int>(std::min<std::int64_t>(kMostPlaneStreams, tiles_.streams() - first));
        for (int s = 0; s < tile.streams; ++s) {
          const std::int64_t row = (first + s) / tiles_.vectors, vector = (first + s) % tiles_.vectors;
          stream[s] = lanes + packed_row(row, task) * row_bytes() + vector * kVectorBytes;
        }
        tile.sum = products + (block * tiles_.streams() + first) * kLanes * kLanes;
        kernels_.plane_tile(tile);
      }
    }
  }

  const ConvShape& shape_;
  const GradientCodes codes_;
  const TileKernels& kernels_;
  const LaneTiles tiles_;
  const Plan plan_;
  const std::int64_t row_quads_;  // of an output row
  const std::int64_t rows_at_once_, images_at_once_;
};

}  // namespace

at::Tensor matrix_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                                  const TileKernels& tiles) {
  at::Tensor dw = empty_weight_gradient(dy, shape);
  const GradientCodes codes{.input = x.code.data_ptr<std::uint8_t>(),
                            .error = dy.code.data_ptr<std::uint8_t>(),
                            .biases = {.error = 0, .input = Affine::of(x).code_bias}};
  TiledSums sums(shape);
  WeightSums(shape, codes, tiles).add_to(sums.all);
  const GradientSums edges(dy, x, shape, codes.biases, sums.input_sums(shape, codes.biases.input));
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    write_weight_gradient(shape, edges, group, sums.of(group), dw);
  }
  return dw;
}

}  // namespace lowtide::integer
