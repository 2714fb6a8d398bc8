#include <vector>

#include "lowtide/base/lanes.h"
#include "lowtide/base/parallel.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/cpu/image_watcher.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/conv_methods.h"
#include "lowtide/engine/integer/direct_walk.h"
#include "lowtide/engine/integer/tuning.h"
#include "lowtide/engine/integer/weight_classes.h"

// The input gradient of a convolution with a wide kernel, one output channel at a time: the kernel's columns of one
// row are a quad, so that three instructions sum a 3×3 kernel as integers, and a fourth scales the sum and adds it.
//
// With dy = s (q - z) + e and w = so (qw - zo) + eo for output channel o, q' = q - bias and d = bias - z,
//
//   Σ dy·w = s (Σ_o so Σ q' qw + Σ_o (eo - so zo) Σ q') + (s d + e) Σ w.
//
// The second sum is the same for every input channel: at each pixel of the error Σ_o (eo - so zo) q', then added up
// under the kernel. The third depends only on which taps are valid.

namespace lowtide::integer {
namespace {

// One row's sums, and what they become: dx = s (sum + window_sum) + value of the class.
struct ScaledSums {
  const float* sum;  // [pixel][vector][16]
  int vectors;
  std::int64_t channels;  // real ones, from the first vector on
  const float* window_sum;
  const std::vector<Phase::Run>& runs;
  float scale;
  const float* class_value;  // of column class 0, at the first vector
  std::int64_t class_step;
  float* out;
  std::int64_t out_step;
};

template <bool kAdds>
LOWTIDE_SIMD void finish_scaled(const ScaledSums& r) {
  const std::int64_t sum_step = r.vectors * kLanes;
  for (int v = 0; v < r.vectors; ++v) {
    const std::int64_t lanes = r.channels - v * kLanes;
    for (const Phase::Run& run : r.runs) {
      const Floats value = LOWTIDE_LOAD(Floats, r.class_value + run.of_class * r.class_step + v * kLanes);
      for (std::int64_t i = run.first; i < run.last; ++i) {
        Floats dx =
            (LOWTIDE_LOAD(Floats, r.sum + i * sum_step + v * kLanes) + r.window_sum[i]) * r.scale + value;
        float* out = r.out + i * r.out_step + v * kLanes;
        if (lanes >= kLanes) {
          if (kAdds) dx += LOWTIDE_LOAD(Floats, out);
          LOWTIDE_STORE(out, dx);
        } else {
          for (std::int64_t lane = 0; lane < lanes; ++lane)
            out[lane] = kAdds ? out[lane] + dx[lane] : dx[lane];
        }
      }
    }
  }
}

// sum[i] = Σ_o weight[o] · planes[o][i]
LOWTIDE_SIMD void weigh_planes(const std::int8_t* planes, std::int64_t plane_bytes,
                               std::span<const float> weight, float* sum) {
  constexpr int kVectors = 4;  // sums that do not wait for each other
  constexpr std::int64_t kBlock = kVectors * kSimdLanes;
  const std::int64_t whole = plane_bytes / kBlock * kBlock;
  for (std::int64_t i = 0; i < whole; i += kBlock) {
    Floats total[kVectors]{};
    const std::int8_t* code = planes + i;
    for (std::size_t o = 0; o < weight.size(); ++o, code += plane_bytes) {
      for (int k = 0; k < kVectors; ++k) {
        total[k] += weight[o] * __builtin_convertvector(LOWTIDE_LOAD_BYTES(code + k * kSimdLanes), Floats);
      }
    }
    for (int k = 0; k < kVectors; ++k) LOWTIDE_STORE(sum + i + k * kSimdLanes, total[k]);
  }
  for (std::int64_t i = whole; i < plane_bytes; ++i) {
    sum[i] = 0;
    for (std::size_t o = 0; o < weight.size(); ++o) {
      sum[i] += weight[o] * static_cast<float>(planes[static_cast<std::int64_t>(o) * plane_bytes + i]);
    }
  }
}

// window_sum[i] = Σ_tap values[tap + i]
LOWTIDE_SIMD void weighted_window_sums(const float* values, const std::vector<std::int64_t>& taps,
                                       std::int64_t n, float* window_sum) {
  const std::int64_t whole = n / kSimdLanes * kSimdLanes;
  for (std::int64_t i = 0; i < whole; i += kSimdLanes) {
    Floats total{};
    for (const std::int64_t tap : taps) total += LOWTIDE_LOAD(Floats, values + tap + i);
    LOWTIDE_STORE(window_sum + i, total);
  }
  for (std::int64_t i = whole; i < n; ++i) {
    window_sum[i] = 0;
    for (const std::int64_t tap : taps) window_sum[i] += values[tap + i];
  }
}

// Vectors come in pairs, a last one alone.
std::vector<VectorBlock> pairs_of(std::int64_t vectors) {
  std::vector<VectorBlock> blocks;
  for (std::int64_t first = 0; first < vectors; first += 2) {
    blocks.push_back({first, vectors - first >= 2 ? 2 : 1});
  }
  return blocks;
}

class ScaledGradient {
 public:
  ScaledGradient(const Quantized& dy, const Quantized& w, const ConvShape& shape, const TileKernels& tiles)
      : shape_(shape),
        tiles_(tiles),
        plan_(input_gradient_plan(shape)),
        layout_(plan_, shape.weight[3], quads_for(plan_.out_cols + kQuad)),
        error_(Affine::of(dy)),
        outputs_(shape.weight[0] / shape.groups),
        inputs_(shape.weight[1]),
        blocks_(pairs_of(vectors_for(inputs_))),
        column_quads_(quads_for(shape.weight[3])),
        code_(dy.code.data_ptr<std::uint8_t>()) {
    // A kernel row's columns in the order of the error's: they run against each other.
    for (std::int64_t row = 0; row < shape.weight[2]; ++row) {
      for (std::int64_t quad = 0; quad < column_quads_; ++quad) {
        const Tap& first = tap_at(shape.weight[2] - 1 - row, shape.weight[3] - 1);
        taps_.push_back(static_cast<std::int32_t>(first.row * layout_.pitch() + first.col + quad * kQuad));
      }
    }
    for (const Tap& tap : phase().taps) window_taps_.push_back(tap.row * layout_.pitch() + tap.col);
    for (std::int64_t group = 0; group < shape.groups; ++group) prepare(w, group);
  }

  void run(const at::Tensor& dx, bool adds, ImageWatcher* watcher) const {
    const std::int64_t tasks = shape_.input[0] * shape_.groups;
    const std::int64_t grain = grain_for(shape_.macs() * shape_.input[0], tasks);
    if (shape_.groups > 1) watcher = nullptr;
    if (watcher) watcher->begin(dx);
    parallel_for(tasks, grain, [&](std::int64_t task) {
      work(task / shape_.groups, task % shape_.groups, dx.data_ptr<float>(), adds, watcher);
      if (watcher) watcher->image(task);
    });
  }

 private:
  struct Group {
    KeptVector<float> scale;          // so
    KeptVector<float> window_weight;  // eo - so zo
    KeptVector<float> class_value;    // (s d + e) Σ w, [class][padded input channel]
    Scratch<std::uint8_t> weights;    // block after block, [output][tap][vector][16][4]
  };

  const Phase& phase() const { return plan_.phases[0]; }
  // With a stride of one every tap is a tap, the last ones first.
  const Tap& tap_at(std::int64_t row, std::int64_t col) const {
    return phase().taps[static_cast<std::size_t>(kernel_taps() - 1 - (row * shape_.weight[3] + col))];
  }
  std::int64_t kernel_taps() const { return shape_.weight[2] * shape_.weight[3]; }
  std::int64_t padded() const { return vectors_for(inputs_) * kLanes; }
  std::int64_t block_bytes(const VectorBlock& block) const {
    return outputs_ * static_cast<std::int64_t>(taps_.size()) * block.vectors * kVectorBytes;
  }

  void prepare(const Quantized& w, std::int64_t group) {
    Group& g = groups_.emplace_back();
    const KeptVector<Affine> rows = affine_rows(w, group * outputs_, outputs_);
    g.scale.reserve(rows.size());
    g.window_weight.reserve(rows.size());
    for (const Affine& row : rows) {
      g.scale.push_back(row.scale);
      g.window_weight.push_back(
          static_cast<float>(row.residual - static_cast<double>(row.scale) * row.zero_point));
    }
    const std::uint8_t* code = w.code.data_ptr<std::uint8_t>() + group * outputs_ * kernel_taps() * inputs_;
    pack_weights(code, g);
    const double factor =
        static_cast<double>(error_.scale) * (error_.code_bias - error_.zero_point) + error_.residual;
    g.class_value = weight_class_values(phase(), code, rows, inputs_, factor);
  }

  void pack_weights(const std::uint8_t* code, Group& g) const {
    std::uint8_t* to = g.weights.at_least(outputs_ * static_cast<std::int64_t>(taps_.size()) *
                                          vectors_for(inputs_) * kVectorBytes);
    for (const VectorBlock& block : blocks_) {
      for (std::int64_t o = 0; o < outputs_; ++o) {
        for (std::int64_t row = 0; row < shape_.weight[2]; ++row) {
          for (std::int64_t quad = 0; quad < column_quads_; ++quad) {
            for (int v = 0; v < block.vectors; ++v, to += kVectorBytes) {
              pack_vector(code + o * kernel_taps() * inputs_, shape_.weight[2] - 1 - row, quad,
                          (block.first + v) * kLanes, to);
            }
          }
        }
      }
    }
  }

  // Kernel row `row` of one output channel: four columns, from the last backwards, of sixteen input channels.
  void pack_vector(const std::uint8_t* code, std::int64_t row, std::int64_t quad, std::int64_t first,
                   std::uint8_t* to) const {
    alignas(kVectorBytes) std::uint8_t columns[kQuad][kLanes] = {};
    for (std::int64_t i = 0; i < kQuad; ++i) {
      const std::int64_t col = shape_.weight[3] - 1 - (quad * kQuad + i);
      if (col < 0) break;
      std::copy_n(code + (row * shape_.weight[3] + col) * inputs_ + first,
                  std::min<std::int64_t>(kLanes, inputs_ - first), columns[i]);
    }
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      for (std::int64_t i = 0; i < kQuad; ++i) to[lane * kQuad + i] = columns[i][lane];
    }
  }

  void work(std::int64_t item, std::int64_t group, float* dx, bool adds, ImageWatcher* watcher) const {
    thread_local Scratch<std::int8_t> plane_memory;
    thread_local Scratch<float> weighted_memory;
    const Group& g = groups_[static_cast<std::size_t>(group)];
    std::int8_t* planes = plane_memory.at_least(outputs_ * layout_.plane_bytes() + kVectorBytes);
    float* weighted = weighted_memory.at_least(layout_.plane_bytes());
    const std::int64_t all = outputs_ * shape_.groups;
    pack_planes(plan_, layout_,
                {.code = code_ + item * plan_.source_rows * plan_.source_cols * all + group * outputs_,
                 .channels = outputs_,
                 .pixel_step = all,
                 .code_bias = error_.code_bias},
                planes);
    weigh_planes(planes, layout_.plane_bytes(), g.window_weight, weighted);
    float* image = dx + item * plan_.out_rows * plan_.out_cols * inputs_ * shape_.groups + group * inputs_;
    rows(g, planes, weighted, image, adds, watcher ? watcher->prefetch_hint(item) : nullptr);
  }

  void rows(const Group& g, const std::int8_t* planes, const float* weighted, float* dx, bool adds,
            const float* hint) const {
    thread_local Scratch<float> window_memory, sum_memory;
    const std::int64_t cols = plan_.out_cols;
    float* window_sum = window_memory.at_least(plan_.out_rows * cols);
    for (std::int64_t row = 0; row < plan_.out_rows; ++row) {
      weighted_window_sums(weighted + row * layout_.pitch(), window_taps_, cols, window_sum + row * cols);
    }
    ScaledRow row_of;
    row_of.tap = taps_.data();
    row_of.taps = static_cast<int>(taps_.size());
    row_of.channels = outputs_;
    row_of.channel_step = layout_.plane_bytes();
    row_of.scale = g.scale.data();
    row_of.sum = sum_memory.at_least(cols * 2 * kLanes);
    row_of.pixels = cols;
    row_of.weight = g.weights.get();
    const std::int64_t step = inputs_ * shape_.groups;
    for (const VectorBlock& block : blocks_) {
      for (std::int64_t row = 0; row < plan_.out_rows; ++row) {
        row_of.prefetch = {};
        if (block.first == 0) {
          row_of.prefetch = {.write = dx + row * cols * step,
                             .read = hint ? hint + row * cols * step : nullptr,
                             .step = step,
                             .floats = inputs_};
        }
        row_of.input = planes + row * layout_.pitch();
        tiles_.scaled_row(row_of, block.vectors);
        finish_row(g, block, row, row_of.sum, window_sum + row * cols, dx, adds);
      }
      row_of.weight += block_bytes(block);
    }
  }

  void finish_row(const Group& g, const VectorBlock& block, std::int64_t row, const float* sum,
                  const float* window_sum, float* dx, bool adds) const {
    const std::int64_t step = inputs_ * shape_.groups, first = block.first * kLanes;
    const std::int64_t row_class = phase().row_class[static_cast<std::size_t>(row)];
    const auto col_classes = static_cast<std::int64_t>(phase().col_valid.size());
    const auto finish_pixels = adds ? finish_scaled<true> : finish_scaled<false>;
    finish_pixels({.sum = sum,
                   .vectors = block.vectors,
                   .channels = inputs_ - first,
                   .window_sum = window_sum,
                   .runs = phase().col_runs,
                   .scale = error_.scale,
                   .class_value = g.class_value.data() + row_class * col_classes * padded() + first,
                   .class_step = padded(),
                   .out = dx + row * plan_.out_cols * step + first,
                   .out_step = step});
  }

  const ConvShape& shape_;
  const TileKernels& tiles_;
  const Plan plan_;
  const PlanarLayout layout_;
  const Affine error_;
  const std::int64_t outputs_, inputs_;  // of a group
  const std::vector<VectorBlock> blocks_;
  const std::int64_t column_quads_;
  const std::uint8_t* code_;
  std::vector<std::int32_t> taps_;         // a kernel row's quads
  std::vector<std::int64_t> window_taps_;  // taps
  std::vector<Group> groups_;
};

}  // namespace

void scaled_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                           const GradientTarget& to, const TileKernels& tiles) {
  ScaledGradient(dy, w, shape, tiles).run(to.dx, to.accumulates, to.watcher);
}

}  // namespace lowtide::integer
