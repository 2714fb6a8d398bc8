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
    const Words zeros = LOWTIDE_LOAD(Words, e.zero.data() + first);
    const Floats factor = LOWTIDE_LOAD(Floats, e.scale.data() + first);
    const Floats box_factor = LOWTIDE_LOAD(Floats, e.box_scale.data() + first);
    for (const Phase::Run& run : *r.runs) {
      const std::size_t of_class = r.row_class * e.col_classes + static_cast<std::size_t>(run.of_class);
      const std::int64_t constants = static_cast<std::int64_t>(of_class) * e.padded + first;
      const Words offset = LOWTIDE_LOAD(Words, e.class_sum.data() + constants);
      const Floats value = LOWTIDE_LOAD(Floats, e.class_value.data() + constants);
      const std::int32_t terms = e.class_terms[of_class];
      for (std::int64_t i = run.first; i < run.last; ++i) {
        const std::int32_t box = r.box[i];
        const Words whole = LOWTIDE_LOAD(Words, r.sum + i * sum_step + v * kLanes) + offset -
                            zeros * static_cast<std::uint32_t>(box);
        const Floats y = __builtin_convertvector(__builtin_bit_cast(Ints, whole), Floats) * factor +
                         (static_cast<float>(box + terms) * box_factor + value);
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

// Σ (qw - zw) over the input channels of each tap.
std::vector<std::int32_t> tap_sums(const GroupWeights& w, const Phase& phase, std::int64_t channel,
                                   std::int32_t zero) {
  std::vector<std::int32_t> sums;
  for (const Tap& tap : phase.taps) {
    const std::uint8_t* code = w.at(channel, tap);
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < w.inputs; ++i) sum += code[i] - zero;
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace

void OutputEpilogue::row(const SumRow& r) const { finish(*this, r); }

OutputEpilogue make_output_epilogue(const GroupWeights& w, const Phase& phase, const Affine& x,
                                    const std::vector<Affine>& rows) {
  OutputEpilogue e;
  e.channels = static_cast<std::int64_t>(rows.size());
  e.padded = vectors_for(e.channels) * kLanes;
  e.col_classes = phase.col_valid.size();
  const auto padded = static_cast<std::size_t>(e.padded);
  e.zero.resize(padded);
  e.scale.resize(padded);
  e.box_scale.resize(padded);
  e.class_sum.resize(phase.classes() * padded);
  e.class_value.resize(phase.classes() * padded);
  e.class_terms.resize(phase.classes());
  const std::int32_t d = x.shift - x.zero;
  for (std::size_t channel = 0; channel < rows.size(); ++channel) {
    const Affine& row = rows[channel];
    e.zero[channel] = row.zero;
    e.scale[channel] = x.scale * row.scale;
    e.box_scale[channel] = static_cast<float>(x.scale * row.residual);
    const std::vector<std::int32_t> sums = tap_sums(w, phase, static_cast<std::int64_t>(channel), row.zero);
    for (std::size_t r = 0; r < phase.row_valid.size(); ++r) {
      for (std::size_t c = 0; c < phase.col_valid.size(); ++c) {
        std::int64_t sum = 0, terms = 0;
        for (std::size_t tap = 0; tap < phase.taps.size(); ++tap) {
          if (!phase.valid(phase.taps[tap], r, c)) continue;
          sum += sums[tap];
          terms += w.inputs;
        }
        const std::size_t at = (r * phase.col_valid.size() + c) * padded + channel;
        e.class_sum[at] = static_cast<std::int32_t>(static_cast<std::uint32_t>(d * sum));
        const auto n = static_cast<double>(terms);
        e.class_terms[r * phase.col_valid.size() + c] = static_cast<std::int32_t>(terms * d);
        e.class_value[at] =
            static_cast<float>(x.residual * (row.scale * static_cast<double>(sum) + n * row.residual));
      }
    }
  }
  return e;
}

std::vector<Affine> weight_rows(const Quantized& w, std::int64_t first, std::int64_t outputs) {
  std::vector<Affine> rows;
  for (std::int64_t i = 0; i < outputs; ++i) rows.push_back(Affine::of(w, first + i));
  return rows;
}

}  // namespace lowtide::integer
