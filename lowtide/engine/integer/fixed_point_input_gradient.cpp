#include <array>

#include "lowtide/base/lanes.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/conv_methods.h"
#include "lowtide/engine/integer/direct_walk.h"
#include "lowtide/engine/integer/fixed_point.h"

// The sum runs over output channels, and each has a scale of its own for its weights: no common factor can be taken
// out of Σ dy·w. Where the kernel is wide, the integer sum is taken for one output channel at a time and scaled
// (scaled_input_gradient.cpp). Here the weights' values are written as 24-bit integers with one scale for each input
// channel (fixed_point.h), three limbs of a byte each, in three neighbouring vectors: three times the products.
//
// With dy = s (q - z) + e and w = S u + M, where u = 2¹⁶ (u0 - 128) + 2⁸ u1 + u2, summed over the N valid terms,
//
//   Σ dy·w = s S Σ (q - z) u + s M Σ (q - z) + e Σ w
//
// and with the tiles' sums over q - bias =: q', d = bias - z, window_sum = Σ q':
//
//   Σ (q - z) u0 = Σ q' u0 + d Σ u0      Σ (q - z) = window_sum + N d.

namespace lowtide::integer {
namespace {

struct GradientEpilogue {
  std::int64_t channels = 0;
  std::int64_t padded = 0;  // channels, to whole vectors; there are three vectors of sums for each
  std::size_t col_classes = 0;
  KeptVector<float> scale;                                 // s S
  KeptVector<float> window_scale;                          // s M
  std::array<KeptVector<std::int32_t>, kLimbs> class_sum;  // d Σ of each byte, by class
  std::vector<std::int32_t> class_terms;                   // N d, by class alone
  KeptVector<float> class_value;                           // e Σ w

  void row(const SumRow& r) const;
};

// A row of the three vectors of sums of sixteen channels.
template <bool kAdds>
LOWTIDE_SIMD void finish_gradients(const GradientEpilogue& e, const SumRow& r) {
  const std::int64_t first = r.block.first / kLimbs * kLanes, lanes = e.channels - first;
  const std::int64_t sum_step = kLimbs * kLanes;
  const Floats factor = LOWTIDE_LOAD(Floats, e.scale.data() + first);
  const Floats window_factor = LOWTIDE_LOAD(Floats, e.window_scale.data() + first);
  for (const Phase::Run& run : *r.runs) {
    const std::size_t of_class = r.row_class * e.col_classes + static_cast<std::size_t>(run.of_class);
    const std::int64_t constants = static_cast<std::int64_t>(of_class) * e.padded + first;
    const Ints offset0 = LOWTIDE_LOAD(Ints, e.class_sum[0].data() + constants);
    const Ints offset1 = LOWTIDE_LOAD(Ints, e.class_sum[1].data() + constants);
    const Ints offset2 = LOWTIDE_LOAD(Ints, e.class_sum[2].data() + constants);
    const Floats value = LOWTIDE_LOAD(Floats, e.class_value.data() + constants);
    const std::int32_t terms = e.class_terms[of_class];
    for (std::int64_t i = run.first; i < run.last; ++i) {
      const std::int32_t window_sum = r.window_sum[i];
      const std::int32_t* sum = r.sum + i * sum_step;
      const Ints sum0 = LOWTIDE_LOAD(Ints, sum) + (offset0 - FixedPoint::centre(0) * window_sum);
      const Ints sum1 = LOWTIDE_LOAD(Ints, sum + kLanes) + offset1;
      const Ints sum2 = LOWTIDE_LOAD(Ints, sum + 2 * kLanes) + offset2;
      const Floats whole =
          __builtin_convertvector(sum0, Floats) * 0x1p16f +
          (__builtin_convertvector(sum1, Floats) * 0x1p8f + __builtin_convertvector(sum2, Floats));
      Floats dx = whole * factor + (static_cast<float>(window_sum + terms) * window_factor + value);
      float* out = r.out + i * r.out_step + first;
      [[maybe_unused]] const float* addend = kAdds ? r.addend + i * r.addend_step + first : nullptr;
      if (lanes >= kLanes) {
        if (kAdds) dx += LOWTIDE_LOAD(Floats, addend);
        LOWTIDE_STORE(out, dx);
      } else {
        for (std::int64_t lane = 0; lane < lanes; ++lane)
          out[lane] = kAdds ? addend[lane] + dx[lane] : dx[lane];
      }
    }
  }
}

void GradientEpilogue::row(const SumRow& r) const {
  const auto finish_row = r.addend ? finish_gradients<true> : finish_gradients<false>;
  finish_row(*this, r);
}

// Rows of the matrix are (output channel, tap), columns input channels.
std::int64_t matrix_row(std::int64_t output, const Tap& tap, const ConvShape& shape) {
  return (output * shape.weight[2] + tap.kernel_row) * shape.weight[3] + tap.kernel_col;
}

// Sums over the output channels at each tap: [tap][vector of input channels].
using SumsByTap = KeptVector<FixedPoint::LimbSums>;

SumsByTap pack_weights(const FixedPoint& w, const ConvShape& shape, const Phase& phase, std::int64_t outputs,
                       PackedWeights& packed) {
  SumsByTap sums(phase.taps.size() * packed.blocks.size());
  for (std::size_t tap = 0; tap < phase.taps.size(); ++tap) {
    for (std::size_t i = 0; i < packed.blocks.size(); ++i) {
      const VectorBlock& block = packed.blocks[i];
      for (std::int64_t quad = 0; quad < quads_for(outputs); ++quad) {
        std::array<std::int64_t, kQuad> rows{};
        for (std::int64_t k = 0; k < kQuad; ++k) {
          const std::int64_t output = quad * kQuad + k;
          rows[static_cast<std::size_t>(k)] =
              output < outputs ? matrix_row(output, phase.taps[tap], shape) : -1;
        }
        w.pack_quad(rows, block.first / kLimbs * kLanes,
                    packed.at(block, 0, static_cast<std::int64_t>(tap), quad),
                    sums[tap * packed.blocks.size() + i]);
      }
    }
  }
  return sums;
}

void add(const FixedPoint::LimbSums& from, FixedPoint::LimbSums& to) {
  for (std::size_t limb = 0; limb < kLimbs; ++limb) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) to[limb][lane] += from[limb][lane];
  }
}

GradientEpilogue make_epilogue(const FixedPoint& w, const SumsByTap& sums, const Phase& phase,
                               const Affine& dy, std::int64_t outputs) {
  GradientEpilogue e;
  const std::size_t channels = w.scale.size(), vectors = (channels + kLanes - 1) / kLanes;
  e.channels = static_cast<std::int64_t>(channels);
  e.padded = static_cast<std::int64_t>(vectors) * kLanes;
  e.col_classes = phase.col_valid.size();
  const auto padded = static_cast<std::size_t>(e.padded);
  e.scale.resize(padded);
  e.window_scale.resize(padded);
  for (auto& by_class : e.class_sum) by_class.resize(phase.classes() * padded);
  e.class_value.resize(phase.classes() * padded);
  for (std::size_t c = 0; c < channels; ++c) {
    e.scale[c] = static_cast<float>(dy.scale * w.scale[c]);
    e.window_scale[c] = static_cast<float>(dy.scale * w.middle[c]);
  }
  e.class_terms.resize(phase.classes());
  const std::int32_t d = dy.code_bias - dy.zero_point;
  for (std::size_t of_class = 0; of_class < phase.classes(); ++of_class) {
    std::int64_t terms = 0;
    SumsByTap valid(vectors);
    for (std::size_t tap = 0; tap < phase.taps.size(); ++tap) {
      if (!phase.valid(phase.taps[tap], of_class / e.col_classes, of_class % e.col_classes)) continue;
      terms += outputs;
      for (std::size_t v = 0; v < vectors; ++v) add(sums[tap * vectors + v], valid[v]);
    }
    e.class_terms[of_class] = static_cast<std::int32_t>(terms * d);
    for (std::size_t c = 0; c < channels; ++c) {
      const FixedPoint::LimbSums& of = valid[c / kLanes];
      const std::size_t at = of_class * padded + c;
      for (std::size_t limb = 0; limb < kLimbs; ++limb) e.class_sum[limb][at] = d * of[limb][c % kLanes];
      e.class_value[at] = static_cast<float>(dy.residual * w.total(static_cast<std::int64_t>(c), of, terms));
    }
  }
  return e;
}

}  // namespace

void fixed_point_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                                const GradientTarget& to, const TileKernels& tiles) {
  const Plan plan = input_gradient_plan(shape);
  const std::int64_t outputs = shape.weight[0] / shape.groups, inputs = shape.weight[1];
  const std::int64_t taps = shape.weight[2] * shape.weight[3];
  const Affine error = Affine::of(dy);
  std::vector<PhaseOperands<GradientEpilogue>> operands;
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    KeptVector<Affine> rows;
    rows.reserve(static_cast<std::size_t>(outputs * taps));
    for (std::int64_t output = 0; output < outputs; ++output) {
      rows.insert(rows.end(), static_cast<std::size_t>(taps), Affine::of(w, group * outputs + output));
    }
    const FixedPoint fixed(w.code.data_ptr<std::uint8_t>() + group * outputs * taps * inputs, rows, inputs);
    for (const Phase& phase : plan.phases) {
      PackedWeights packed(kLimbs * vectors_for(inputs), static_cast<std::int64_t>(phase.taps.size()),
                           quads_for(outputs), /*threes=*/true);
      const SumsByTap sums = pack_weights(fixed, shape, phase, outputs, packed);
      operands.push_back({std::move(packed), make_epilogue(fixed, sums, phase, error, outputs)});
    }
  }
  const DirectCall call{.code = dy.code.data_ptr<std::uint8_t>(),
                        .items = shape.input[0],
                        .groups = shape.groups,
                        .in_channels = outputs,
                        .out_channels = inputs,
                        .code_bias = error.code_bias,
                        .out = to.dx,
                        .watcher = to.watcher,
                        .addend = to.accumulates ? to.dx : to.addend};
  DirectWalk<GradientEpilogue>(plan, call, operands, tiles).run(kLimbs * shape.macs() * shape.input[0]);
}

}  // namespace lowtide::integer
