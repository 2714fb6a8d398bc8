#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "lowtide/base/scratch.h"
#include "lowtide/engine/cpu/image_watcher.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/conv_methods.h"
#include "lowtide/engine/integer/gradient_sums.h"
#include "lowtide/engine/integer/plan.h"
#include "lowtide/engine/integer/tap_sums.h"
#include "lowtide/engine/integer/tiles.h"
#include "lowtide/engine/integer/tuning.h"
#include "lowtide/engine/integer/wide_sums.h"

// A depthwise convolution has nine products an output where a dense one has hundreds: it is bound by memory and by
// widening bytes, not by products. Lanes are channels, which never mix; so the weights' scales stay a factor of every
// sum, and the input gradient is the same walk as the output, over another plan.

namespace lowtide::integer {
namespace {

// Constants of one phase; with x = sx (qx - zx) + ex and w = sw (qw - zw) + ew and n valid taps,
//   Σ x·w = sx sw (Σ qx (qw - zw) - zx Σ (qw - zw)) + sx ew (Σ qx - n zx) + ex (sw Σ (qw - zw) + n ew).
struct PhaseConstants {
  std::vector<std::vector<DepthwiseTap>> taps;  // valid ones, by class
  KeptVector<std::int32_t> class_sum;           // - zx Σ (qw - zw), [class][channel]
  KeptVector<float> class_value;                // ex (sw Σ (qw - zw) + n ew) - n zx sx ew
};

struct Weights {
  KeptVector<std::int32_t> centred;  // qw - zw, [tap][channel]
  KeptVector<Affine> rows;           // by channel
  KeptVector<float> scale;           // sx sw
  KeptVector<float> window_scale;    // sx ew

  Weights(const Quantized& w, std::int64_t channels, std::int64_t taps, const Affine& x)
      : centred(static_cast<std::size_t>(taps * channels)),
        rows(affine_rows(w, 0, channels)),
        scale(rows.size()),
        window_scale(rows.size()) {
    const std::uint8_t* code = w.code.data_ptr<std::uint8_t>();  // [channel][tap]
    for (std::size_t c = 0; c < rows.size(); ++c) {
      scale[c] = x.scale * rows[c].scale;
      window_scale[c] = static_cast<float>(x.scale * rows[c].residual);
      for (std::int64_t tap = 0; tap < taps; ++tap, ++code)
        centred[static_cast<std::size_t>(tap * channels) + c] = *code - rows[c].zero_point;
    }
  }
};

PhaseConstants make_constants(const Plan& plan, const Phase& phase, const Weights& w, const Affine& x,
                              std::int64_t kernel_cols) {
  const std::size_t channels = w.rows.size();
  PhaseConstants constants;
  constants.class_sum.reserve(phase.classes() * channels);
  constants.class_value.reserve(phase.classes() * channels);
  for (std::size_t r = 0; r < phase.row_valid.size(); ++r) {
    for (std::size_t col = 0; col < phase.col_valid.size(); ++col) {
      std::vector<DepthwiseTap>& valid = constants.taps.emplace_back();
      KeptVector<std::int64_t> sums(channels);
      for (const Tap& tap : phase.taps) {
        if (!phase.valid(tap, r, col)) continue;
        const std::int64_t index = tap.kernel_row * kernel_cols + tap.kernel_col;
        const auto c = static_cast<std::int64_t>(channels);
        valid.push_back({index * c, ((tap.row - plan.top) * plan.source_cols + tap.col - plan.left) * c});
        for (std::size_t i = 0; i < channels; ++i)
          sums[i] += w.centred[static_cast<std::size_t>(index * c) + i];
      }
      const auto n = static_cast<double>(valid.size());
      for (std::size_t i = 0; i < channels; ++i) {
        const auto sum = static_cast<double>(sums[i]);
        constants.class_sum.push_back(static_cast<std::int32_t>(-x.zero_point * sums[i]));
        constants.class_value.push_back(
            static_cast<float>(x.residual * (w.rows[i].scale * sum + n * w.rows[i].residual) -
                               n * x.zero_point * x.scale * w.rows[i].residual));
      }
    }
  }
  return constants;
}

// An output row of a phase, of one image.
void walk_row(const Plan& plan, const Phase& phase, const PhaseConstants& constants, const Weights& w,
              std::int64_t row, const std::uint8_t* image, float* out, const TileKernels& tiles) {
  const auto channels = static_cast<std::int64_t>(w.rows.size());
  const std::int64_t out_row = phase.first_row + row * plan.out_row_step;
  const auto row_class = static_cast<std::size_t>(phase.row_class[static_cast<std::size_t>(row)]);
  for (const Phase::Run& run : phase.col_runs) {
    const std::size_t of_class = row_class * phase.col_valid.size() + static_cast<std::size_t>(run.of_class);
    const std::int64_t out_col = phase.first_col + run.first * plan.out_col_step;
    const std::int64_t source = row * plan.row_step * plan.source_cols + run.first * plan.column_split;
    const auto& taps = constants.taps[of_class];
    tiles.depthwise_run({.source = image + source * channels,
                         .pixels = run.last - run.first,
                         .source_step = plan.column_split * channels,
                         .taps = taps.data(),
                         .count = static_cast<std::int64_t>(taps.size()),
                         .class_sum = constants.class_sum.data() + of_class * w.rows.size(),
                         .class_value = constants.class_value.data() + of_class * w.rows.size(),
                         .out = out + (out_row * plan.out_cols + out_col) * channels,
                         .out_step = plan.out_col_step * channels},
                        {.weight = w.centred.data(),
                         .scale = w.scale.data(),
                         .window_scale = w.window_scale.data(),
                         .channels = channels});
  }
}

at::Tensor walk(const Plan& plan, const Quantized& x, const Quantized& w, const ConvShape& shape,
                ImageWatcher* watcher, const TileKernels& tiles) {
  const std::int64_t items = shape.input[0], channels = shape.input[1];
  at::Tensor y = at::empty({items, channels, plan.out_rows, plan.out_cols},
                           x.scale.options().memory_format(at::MemoryFormat::ChannelsLast));
  const Affine input = Affine::of(x);
  const Weights weights(w, channels, shape.weight[2] * shape.weight[3], input);
  std::vector<PhaseConstants> constants;
  for (const Phase& phase : plan.phases) {
    constants.push_back(make_constants(plan, phase, weights, input, shape.weight[3]));
  }
  const std::int64_t grain =
      std::max<std::int64_t>(1, kDepthwiseOutputsPerThread * items / std::max<std::int64_t>(1, y.numel()));
  if (watcher) watcher->begin(y);
  at::parallel_for(0, items, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::uint8_t* image =
          x.code.data_ptr<std::uint8_t>() + item * plan.source_rows * plan.source_cols * channels;
      float* out = y.data_ptr<float>() + item * plan.out_rows * plan.out_cols * channels;
      for (std::size_t i = 0; i < plan.phases.size(); ++i) {
        for (std::int64_t row = 0; row < plan.phases[i].rows; ++row) {
          walk_row(plan, plan.phases[i], constants[i], weights, row, image, out, tiles);
        }
      }
      if (watcher) watcher->image(item);
    }
  });
  return y;
}

// Σ q qx of one row of the error against one of the input. Columns at which the whole kernel row is valid are summed for
// all its taps at once, the others tap by tap.
void add_row_products(const Plan& plan, std::int64_t kernel_row, const std::uint8_t* error,
                      const std::uint8_t* input, std::int64_t channels, const TileKernels& tiles,
                      std::int32_t* sum) {
  const Phase& phase = plan.phases[0];
  const auto taps = static_cast<std::int64_t>(phase.col_valid[0].size());
  for (const Phase::Run& run : phase.col_runs) {
    const std::vector<bool>& valid = phase.col_valid[static_cast<std::size_t>(run.of_class)];
    const std::int64_t column = run.first * plan.column_split - plan.left;  // that tap 0 reads
    const bool whole = std::all_of(valid.begin(), valid.end(), [](bool is_valid) { return is_valid; });
    const auto add = [&](std::int64_t first_tap, int count) {
      tiles.depthwise_row({.error = error + run.first * channels,
                           .input = input + (column + first_tap) * channels,
                           .cols = run.last - run.first,
                           .step = plan.column_split,
                           .channels = channels,
                           .taps = count,
                           .sum = sum + (kernel_row * taps + first_tap) * channels});
    };
    if (whole) {
      add(0, static_cast<int>(taps));
      continue;
    }
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      if (valid[static_cast<std::size_t>(tap)]) add(tap, 1);
    }
  }
}

// Σ q qx of one image, [tap][channel].
template <typename Sums>
void add_image_products(const Plan& plan, const std::uint8_t* error, const std::uint8_t* input,
                        std::int64_t channels, const TileKernels& tiles, Sums& sums) {
  for (std::int64_t row = 0; row < plan.out_rows; ++row) {
    std::int32_t* sum = sums.add(plan.out_cols);
    for (const Tap& tap : plan.phases[0].taps) {
      if (tap.kernel_col != 0) continue;
      const std::int64_t y = row * plan.row_step + tap.row - plan.top;
      if (y < 0 || y >= plan.source_rows) continue;
      add_row_products(plan, tap.kernel_row, error + row * plan.out_cols * channels,
                       input + y * plan.source_cols * channels, channels, tiles, sum);
    }
  }
}

}  // namespace

at::Tensor depthwise_output(const Quantized& x, const Quantized& w, const ConvShape& shape,
                            ImageWatcher* watcher, const TileKernels& tiles) {
  return walk(output_plan(shape), x, w, shape, watcher, tiles);
}

at::Tensor depthwise_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                                    ImageWatcher* watcher, const TileKernels& tiles) {
  return walk(input_gradient_plan(shape), dy, w, shape, watcher, tiles);
}

at::Tensor depthwise_weight_gradient(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                                     const TileKernels& tiles) {
  const Plan plan = output_plan(shape);
  const std::int64_t items = shape.input[0], channels = shape.input[1],
                     taps = shape.weight[2] * shape.weight[3];
  WideSums total(taps * channels);
  TapSums input_sums(x, shape, Covered::kInputs);
  const std::int64_t grain = std::max<std::int64_t>(
      1, kDepthwiseOutputsPerThread * items / std::max<std::int64_t>(1, dy.code.numel()));
  at::parallel_for(0, items, grain, [&](std::int64_t begin, std::int64_t end) {
    thread_local Scratch<std::int32_t> sum_memory;
    NarrowSums sums(sum_memory.at_least(total.count()), total.count(),
                    [&](const std::int32_t* sum) { total.add(sum); });
    TapSums::Part inputs(input_sums);
    for (std::int64_t item = begin; item < end; ++item) {
      inputs.add_image(item);
      add_image_products(
          plan, dy.code.data_ptr<std::uint8_t>() + item * plan.out_rows * plan.out_cols * channels,
          x.code.data_ptr<std::uint8_t>() + item * plan.source_rows * plan.source_cols * channels, channels,
          tiles, sums);
    }
  });
  at::Tensor dw = at::empty(shape.weight, dy.scale.options().memory_format(at::MemoryFormat::ChannelsLast));
  const GradientSums edges(dy, x, shape, {}, input_sums.by_tap());
  float* out = dw.data_ptr<float>();
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      edges.values({.sum = total.get() + tap * channels + c,
                    .step = 1,
                    .output = c,
                    .tap = tap,
                    .first = c,
                    .channels = 1},
                   out + c * taps + tap);
    }
  }
  return dw;
}

}  // namespace lowtide::integer
