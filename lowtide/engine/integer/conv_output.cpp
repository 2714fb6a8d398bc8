#include <cmath>

#include "lowtide/base/lanes.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/dense.h"
#include "lowtide/engine/integer/products.h"

// With x = sx (qx - zx) + ex and w = sw (qw - zw) + ew, see affine.h, summed over the N valid terms,
//
//   Σ x·w = sx sw Σ (qx - zx)(qw - zw) + sx ew Σ (qx - zx) + ex (sw Σ (qw - zw) + N ew).
//
// The tiles give acc = Σ (qx - shift) qw and box = Σ (qx - shift); with d = shift - zx
//
//   Σ (qx - zx)(qw - zw) = acc - zw box + d Σ (qw - zw)      Σ (qx - zx) = box + N d.
//
// What does not depend on the pixel but on its class of valid taps is computed once.

namespace lowtide::integer {
namespace {

// One phase's constants, a column for each output channel, padded to whole vectors.
struct OutputEpilogue {
  std::int64_t channels = 0;  // real ones
  std::int64_t padded = 0;
  std::size_t col_classes = 0;
  std::vector<std::int32_t> zero;         // zw
  std::vector<float> scale;               // sx sw
  std::vector<float> box_scale;           // sx ew
  std::vector<std::int32_t> class_sum;    // d Σ (qw - zw), by class
  std::vector<std::int32_t> class_terms;  // N d, by class alone
  std::vector<float> class_value;         // ex (sw Σ (qw - zw) + N ew), by class

  void row(const SumRow& r) const;
};

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

void OutputEpilogue::row(const SumRow& r) const { finish(*this, r); }

// The weight codes of one group: [channel][kernel row][kernel column][input channel].
struct GroupWeights {
  const std::uint8_t* code;
  std::int64_t rows, cols, inputs;

  const std::uint8_t* at(std::int64_t channel, const Tap& tap) const {
    return code + ((channel * rows + tap.kernel_row) * cols + tap.kernel_col) * inputs;
  }
};

void pack_weights(const GroupWeights& w, const Phase& phase, std::int64_t channels, PackedWeights& packed) {
  const std::int64_t quads = quads_for(w.inputs);
  for (const Block& block : packed.blocks) {
    for (int v = 0; v < block.vectors; ++v) {
      const std::int64_t first = (block.first + v) * kLanes;
      for (std::size_t tap = 0; tap < phase.taps.size(); ++tap) {
        for (std::int64_t quad = 0; quad < quads; ++quad) {
          std::uint8_t* to = packed.at(block, v, static_cast<std::int64_t>(tap), quad);
          std::fill_n(to, kVectorBytes, std::uint8_t{0});
          const std::int64_t bytes = std::min<std::int64_t>(kQuad, w.inputs - quad * kQuad);
          for (std::int64_t lane = 0; lane < std::min<std::int64_t>(kLanes, channels - first); ++lane) {
            const std::uint8_t* from = w.at(first + lane, phase.taps[tap]) + quad * kQuad;
            for (std::int64_t i = 0; i < bytes; ++i) to[lane * kQuad + i] = from[i];
          }
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

OutputEpilogue make_epilogue(const GroupWeights& w, const Phase& phase, const Affine& x,
                             const std::vector<Affine>& weight_rows) {
  OutputEpilogue e;
  e.channels = static_cast<std::int64_t>(weight_rows.size());
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
  for (std::size_t channel = 0; channel < weight_rows.size(); ++channel) {
    const Affine& row = weight_rows[channel];
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

}  // namespace

at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape, ImageWatcher* watcher,
                  const TileKernels& tiles) {
  const Plan plan = output_plan(shape);
  const std::int64_t outputs = shape.weight[0] / shape.groups, inputs = shape.weight[1];
  at::Tensor y = at::empty({shape.input[0], shape.weight[0], plan.out_rows, plan.out_cols},
                           x.scale.options().memory_format(at::MemoryFormat::ChannelsLast));
  std::vector<PhaseOperands<OutputEpilogue>> operands;
  const Phase& phase = plan.phases[0];
  const Affine input = Affine::of(x);
  const auto taps = static_cast<std::int64_t>(phase.taps.size());
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    const GroupWeights weights{w.code.data_ptr<std::uint8_t>() + group * outputs * taps * inputs,
                               shape.weight[2], shape.weight[3], inputs};
    std::vector<Affine> rows;
    for (std::int64_t channel = 0; channel < outputs; ++channel) {
      rows.push_back(Affine::of(w, group * outputs + channel));
    }
    operands.push_back({PackedWeights(vectors_for(outputs), taps, quads_for(inputs)),
                        make_epilogue(weights, phase, input, rows)});
    pack_weights(weights, phase, outputs, operands.back().weights);
  }
  const DenseCall call{x.code.data_ptr<std::uint8_t>(),
                       shape.input[0],
                       shape.groups,
                       inputs,
                       outputs,
                       input.shift,
                       y,
                       watcher};
  DenseWalk<OutputEpilogue>(plan, call, operands, tiles).run(shape.macs() * shape.input[0]);
  return y;
}

}  // namespace lowtide::integer
