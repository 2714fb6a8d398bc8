#include <algorithm>
#include <cstring>

#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/conv_methods.h"
#include "lowtide/engine/integer/output_epilogue.h"
#include "lowtide/engine/integer/tuning.h"
#include "lowtide/engine/integer/winograd_walk.h"

namespace lowtide::integer {
namespace {

// sum[pixel] = Σ (code - zero) over its channels
LOWTIDE_SIMD void sum_channels(const std::uint8_t* code, std::int64_t pixels, std::int64_t channels,
                               std::int32_t zero, std::int32_t* sum) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, code += channels) {
    std::int32_t total = 0;
    for (std::int64_t c = 0; c < channels; ++c) total += code[c];
    sum[pixel] = total - zero * static_cast<std::int32_t>(channels);
  }
}

// One output channel's codes less their zero, transformed.
void transform_lane(const GroupWeights& w, const VectorBlock& block, std::int64_t lane, std::int32_t zero,
                    const WinogradKernels& kernels, const WinogradWeights& transformed) {
  alignas(kVectorBytes) std::int16_t value[kTaps * kPairVector], points[kPoints * kPairVector];
  const std::uint8_t* code = w.code + (block.first * kLanes + lane) * kTaps * w.inputs;
  for (std::int64_t c = 0; c < w.inputs; c += kPairVector) {
    for (std::int64_t tap = 0; tap < kTaps; ++tap) {
      for (std::int64_t i = 0; i < kPairVector; ++i) {
        value[tap * kPairVector + i] = static_cast<std::int16_t>(code[tap * w.inputs + c + i] - zero);
      }
    }
    kernels.kernel(value, points, kPairVector);
    for (std::int64_t point = 0; point < kPoints; ++point) {
      std::int16_t* to = transformed.at(0, block, point, c / kPair) + lane * kPair;
      for (std::int64_t pair = 0; pair < kPairVector / kPair; ++pair) {
        std::memcpy(to + pair * block.vectors * kPairVector, points + point * kPairVector + pair * kPair,
                    kPair * sizeof(std::int16_t));
      }
    }
  }
}

WinogradWeights transform_weights(const GroupWeights& w, std::span<const Affine> rows,
                                  const WinogradKernels& kernels) {
  WinogradWeights transformed(1, w.inputs, static_cast<std::int64_t>(rows.size()));
  for (const VectorBlock& block : transformed.blocks) {
    parallel_for(block.vectors * kLanes, kTransformedLanesPerThread, [&](std::int64_t lane) {
      transform_lane(w, block, lane, rows[static_cast<std::size_t>(block.first * kLanes + lane)].zero_point,
                     kernels, transformed);
    });
  }
  return transformed;
}

// Makes floats of sums that winograd.h gave: codes are recentred before, so the epilogue has no bias to correct.
class WinogradOutput {
 public:
  WinogradOutput(const Plan& plan, const Quantized& x, const OutputEpilogue& epilogue, at::Tensor& y)
      : plan_(plan),
        code_(x.code.data_ptr<std::uint8_t>()),
        channels_(x.code.size(1)),
        zero_(Affine::of(x).zero_point),
        epilogue_(epilogue),
        y_(y) {
    for (const Tap& tap : plan.phases[0].taps) {
      taps_.push_back(static_cast<std::int32_t>(tap.row * plan.packed_cols + tap.col));
    }
  }

  struct Images {
    const WinogradOutput& of;
    std::int64_t first;
    const std::int32_t* window_sum;  // [image][row][column]

    void finish(const WinogradRow& r) const { of.finish(r, window_sum + (r.item - first) * of.pixels()); }
  };

  Images images(std::int64_t first, std::int64_t count) const {
    thread_local Scratch<std::int32_t> window_memory, sum_memory;
    std::int32_t* window_sum = window_memory.at_least(count * pixels());
    std::int32_t* sums = sum_memory.at_least(plan_.packed_rows * plan_.packed_cols);
    std::fill_n(sums, plan_.packed_rows * plan_.packed_cols, 0);
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t row = 0; row < plan_.source_rows; ++row) {
        sum_channels(code_ + ((first + i) * plan_.source_rows + row) * plan_.source_cols * channels_,
                     plan_.source_cols, channels_, zero_,
                     sums + (row + plan_.top) * plan_.packed_cols + plan_.left);
      }
      for (std::int64_t row = 0; row < plan_.out_rows; ++row) {
        window_sums(sums + row * plan_.packed_cols, taps_.data(), taps_.size(), plan_.out_cols,
                    window_sum + i * pixels() + row * plan_.out_cols);
      }
    }
    return {*this, first, window_sum};
  }

 private:
  std::int64_t pixels() const { return plan_.out_rows * plan_.out_cols; }

  void finish(const WinogradRow& r, const std::int32_t* window_sum) const {
    const Phase& phase = plan_.phases[0];
    const std::int64_t row_floats = plan_.out_cols * epilogue_.channels;
    float* out = y_.data_ptr<float>() + (r.item * plan_.out_rows + r.row) * row_floats;
    epilogue_.row({.block = r.block,
                   .sum = r.sum,
                   .window_sum = window_sum + r.row * plan_.out_cols,
                   .row_class = static_cast<std::size_t>(phase.row_class[static_cast<std::size_t>(r.row)]),
                   .runs = &phase.col_runs,
                   .out = out,
                   .out_step = epilogue_.channels});
  }

  const Plan& plan_;
  const std::uint8_t* code_;
  const std::int64_t channels_;
  const std::int32_t zero_;
  const OutputEpilogue& epilogue_;
  at::Tensor& y_;
  std::vector<std::int32_t> taps_;
};

}  // namespace

at::Tensor winograd_output(const Quantized& x, const Quantized& w, const ConvShape& shape,
                           ImageWatcher* watcher, const TileKernels& tiles) {
  const Plan plan = output_plan(shape);
  const std::int64_t outputs = shape.weight[0], inputs = shape.weight[1];
  at::Tensor y = at::empty({shape.input[0], outputs, plan.out_rows, plan.out_cols},
                           x.scale.options().memory_format(at::MemoryFormat::ChannelsLast));
  const GroupWeights weights{w.code.data_ptr<std::uint8_t>(), shape.weight[2], shape.weight[3], inputs};
  const KeptVector<Affine> rows = affine_rows(w, 0, outputs);
  Affine input = Affine::of(x);
  input.code_bias = input.zero_point;
  OutputEpilogue epilogue = make_output_epilogue(weights, plan.phases[0], input, rows);
  std::fill(epilogue.zero_point.begin(), epilogue.zero_point.end(), 0);
  const WinogradWeights transformed = transform_weights(weights, rows, tiles.winograd);
  std::int64_t max_deviation = 1;
  for (const Affine& row : rows)
    max_deviation = std::max<std::int64_t>(max_deviation, row.max_deviation(w.bits));
  const std::int64_t at_once =
      channels_at_once(inputs, (kWinogradLimit - 1) / (kTaps * input.max_deviation(x.bits) * max_deviation));
  const WinogradCall call(plan, x, at_once, y, watcher);
  const WinogradOutput output(plan, x, epilogue, y);
  WinogradWalk<WinogradOutput>(call, transformed, output, tiles).run();
  return y;
}

}  // namespace lowtide::integer
