#include "lowtide/engine/integer/output_epilogue.h"

#include "lowtide/base/lanes.h"
#include "lowtide/base/simd.h"

namespace lowtide::integer {
namespace {

// One call for a whole row: one for each vector and class of edge took 2 to 3 % more of a training step.
LOWTIDE_SIMD void finish(const OutputEpilogue& e, const SumRow& r) {
  const std::int64_t sum_step = r.block.vectors * kLanes;
  for (int v = 0; v < r.block.vectors; ++v) {
    const std::int64_t first = (r.block.first + v) * kLanes, lanes = e.channels - first;
    // Unsigned, because it wraps on the way; never in the end: kMostTerms.
    const Words zeros = LOWTIDE_LOAD(Words, e.zero_point.data() + first);
    const Floats factor = LOWTIDE_LOAD(Floats, e.scale.data() + first);
    const Floats window_factor = LOWTIDE_LOAD(Floats, e.window_scale.data() + first);
    for (const Phase::Run& run : *r.runs) {
      const std::size_t of_class = r.row_class * e.col_classes + static_cast<std::size_t>(run.of_class);
      const std::int64_t constants = static_cast<std::int64_t>(of_class) * e.padded + first;
      const Words offset = LOWTIDE_LOAD(Words, e.class_sum.data() + constants);
      const Floats value = LOWTIDE_LOAD(Floats, e.class_value.data() + constants);
      const std::int32_t terms = e.class_terms[of_class];
      for (std::int64_t i = run.first; i < run.last; ++i) {
        const std::int32_t window_sum = r.window_sum[i];
        const Words whole = LOWTIDE_LOAD(Words, r.sum + i * sum_step + v * kLanes) + offset -
                            zeros * static_cast<std::uint32_t>(window_sum);
        const Floats y = __builtin_convertvector(__builtin_bit_cast(Ints, whole), Floats) * factor +
                         (static_cast<float>(window_sum + terms) * window_factor + value);
        float* out = r.out + i * r.out_step + first;
        if (lanes >= kLanes) {
          LOWTIDE_STORE(out, y);
        } else {
          std::memcpy(out, &y, static_cast<std::size_t>(lanes) * sizeof(float));
        }
      }
    }
  }
}

// Σ code over the input channels of each tap: sum[tap][channel].
LOWTIDE_SIMD void sum_inputs(const GroupWeights& w, std::int64_t channels, std::int32_t* sum) {
  const std::uint8_t* code = w.code;
  const std::int64_t taps = w.rows * w.cols, inputs = w.inputs;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    for (std::int64_t tap = 0; tap < taps; ++tap, code += inputs) {
      std::int32_t total = 0;
      for (std::int64_t i = 0; i < inputs; ++i) total += code[i];
      sum[tap * channels + channel] = total;
    }
  }
}

}  // namespace

void OutputEpilogue::row(const SumRow& r) const { finish(*this, r); }

OutputEpilogue make_output_epilogue(const GroupWeights& w, const Phase& phase, const Affine& x,
                                    std::span<const Affine> rows) {
  OutputEpilogue e;
  e.channels = static_cast<std::int64_t>(rows.size());
  e.padded = vectors_for(e.channels) * kLanes;
  e.col_classes = phase.col_valid.size();
  const auto padded = static_cast<std::size_t>(e.padded);
  e.zero_point.resize(padded);
  e.scale.resize(padded);
  e.window_scale.resize(padded);
  e.class_sum.resize(phase.classes() * padded);
  e.class_value.resize(phase.classes() * padded);
  e.class_terms.resize(phase.classes());
  const std::int32_t d = x.code_bias - x.zero_point;
  for (std::size_t channel = 0; channel < rows.size(); ++channel) {
    e.zero_point[channel] = rows[channel].zero_point;
    e.scale[channel] = x.scale * rows[channel].scale;
    e.window_scale[channel] = static_cast<float>(x.scale * rows[channel].residual);
  }
  KeptVector<std::int32_t> sums(static_cast<std::size_t>(w.rows * w.cols) * rows.size());
  sum_inputs(w, e.channels, sums.data());
  KeptVector<std::int64_t> valid(rows.size());  // Σ qw over a class's taps
  for (std::size_t of_class = 0; of_class < phase.classes(); ++of_class) {
    std::fill(valid.begin(), valid.end(), 0);
    std::int64_t terms = 0;
    for (const Tap& tap : phase.taps) {
      if (!phase.valid(tap, of_class / e.col_classes, of_class % e.col_classes)) continue;
      const std::int32_t* of_tap = sums.data() + (tap.kernel_row * w.cols + tap.kernel_col) * e.channels;
      for (std::size_t channel = 0; channel < valid.size(); ++channel) valid[channel] += of_tap[channel];
      terms += w.inputs;
    }
    e.class_terms[of_class] = static_cast<std::int32_t>(terms * d);
    for (std::size_t channel = 0; channel < rows.size(); ++channel) {
      const Affine& row = rows[channel];
      const std::int64_t sum = valid[channel] - terms * row.zero_point;  // Σ (qw - zw)
      const std::size_t at = of_class * padded + channel;
      e.class_sum[at] = static_cast<std::int32_t>(static_cast<std::uint32_t>(d * sum));
      e.class_value[at] = static_cast<float>(
          x.residual * (row.scale * static_cast<double>(sum) + static_cast<double>(terms) * row.residual));
    }
  }
  return e;
}

}  // namespace lowtide::integer
