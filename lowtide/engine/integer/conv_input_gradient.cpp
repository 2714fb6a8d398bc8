#include <array>
#include <limits>

#include "lowtide/base/lanes.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/dense.h"
#include "lowtide/engine/integer/fixed_point.h"
#include "lowtide/engine/integer/products.h"

// The sum runs over output channels, and each has a scale of its own for its weights: no common factor can be taken
// out of Σ dy·w. Where the kernel is wide, the integer sum is taken for one output channel at a time and scaled
// (conv_scaled_gradient.cpp). Here the weights' values are written as 24-bit integers with one scale for each input
// channel (fixed_point.h), three bytes as three vectors beside each other: three times the products.
//
// With dy = s (q - z) + e and w = S u + M, where u = 2¹⁶ (u0 - 128) + 2⁸ u1 + u2, summed over the N valid terms,
//
//   Σ dy·w = s S Σ (q - z) u + s M Σ (q - z) + e Σ w
//
// and with the tiles' sums over q - shift =: q', d = shift - z, box = Σ q':
//
//   Σ (q - z) u0 = Σ q' u0 + d Σ u0      Σ (q - z) = box + N d.

namespace lowtide::integer {
namespace {

struct GradientEpilogue {
  std::int64_t channels = 0;
  std::int64_t padded = 0;  // channels, to whole vectors; there are three vectors of sums for each
  std::size_t col_classes = 0;
  std::vector<float> scale;                                  // s S
  std::vector<float> box_scale;                              // s M
  std::array<std::vector<std::int32_t>, kPlanes> class_sum;  // d Σ of each byte, by class
  std::vector<std::int32_t> class_terms;                     // N d, by class alone
  std::vector<float> class_value;                            // e Σ w

  void row(const SumRow& r) const;
};

// A row of the three vectors of sums of sixteen channels.
template <bool kAdds>
LOWTIDE_SIMD void finish(const GradientEpilogue& e, const SumRow& r) {
  const std::int64_t first = r.block.first / kPlanes * kLanes, lanes = e.channels - first;
  const std::int64_t sum_step = kPlanes * kLanes;
  const Floats factor = LOWTIDE_LOAD(Floats, e.scale.data() + first);
  const Floats box_factor = LOWTIDE_LOAD(Floats, e.box_scale.data() + first);
  for (const Phase::Run& run : *r.runs) {
    const std::size_t of_class = r.row_class * e.col_classes + static_cast<std::size_t>(run.of_class);
    const std::int64_t constants = static_cast<std::int64_t>(of_class) * e.padded + first;
    const Ints offset0 = LOWTIDE_LOAD(Ints, e.class_sum[0].data() + constants);
    const Ints offset1 = LOWTIDE_LOAD(Ints, e.class_sum[1].data() + constants);
    const Ints offset2 = LOWTIDE_LOAD(Ints, e.class_sum[2].data() + constants);
    const Floats value = LOWTIDE_LOAD(Floats, e.class_value.data() + constants);
    const std::int32_t terms = e.class_terms[of_class];
    for (std::int64_t i = run.first; i < run.last; ++i) {
      const std::int32_t box = r.box[i];
      const std::int32_t* sum = r.sum + i * sum_step;
      const Ints sum0 = LOWTIDE_LOAD(Ints, sum) + (offset0 - FixedPoint::centre(0) * box);
      const Ints sum1 = LOWTIDE_LOAD(Ints, sum + kLanes) + offset1;
      const Ints sum2 = LOWTIDE_LOAD(Ints, sum + 2 * kLanes) + offset2;
      const Floats whole =
          __builtin_convertvector(sum0, Floats) * 0x1p16f +
          (__builtin_convertvector(sum1, Floats) * 0x1p8f + __builtin_convertvector(sum2, Floats));
      Floats dx = whole * factor + (static_cast<float>(box + terms) * box_factor + value);
      float* out = r.out + i * r.out_step + first;
      [[maybe_unused]] const float* onto = kAdds ? r.onto + i * r.onto_step + first : nullptr;
      if (lanes >= kLanes) {
        if (kAdds) dx += LOWTIDE_LOAD(Floats, onto);
        LOWTIDE_STORE(out, dx);
      } else {
        for (std::int64_t lane = 0; lane < lanes; ++lane)
          out[lane] = kAdds ? onto[lane] + dx[lane] : dx[lane];
      }
    }
  }
}

void GradientEpilogue::row(const SumRow& r) const {
  const auto finish_row = r.onto ? finish<true> : finish<false>;
  finish_row(*this, r);
}

// Rows of the matrix are (output channel, kernel position), columns input channels.
std::int64_t matrix_row(std::int64_t output, const Tap& tap, const ConvShape& shape) {
  return (output * shape.weight[2] + tap.kernel_row) * shape.weight[3] + tap.kernel_col;
}

void pack_weights(const FixedPoint& w, const ConvShape& shape, const Phase& phase, std::int64_t outputs,
                  PackedWeights& packed) {
  const std::int64_t inputs = shape.weight[1];
  for (const Block& block : packed.blocks) {
    const std::int64_t first = block.first / kPlanes * kLanes;
    for (int plane = 0; plane < kPlanes; ++plane) {
      for (std::size_t tap = 0; tap < phase.taps.size(); ++tap) {
        for (std::int64_t quad = 0; quad < quads_for(outputs); ++quad) {
          std::uint8_t* to = packed.at(block, plane, static_cast<std::int64_t>(tap), quad);
          std::fill_n(to, kVectorBytes, std::uint8_t{0});
          for (std::int64_t i = 0; i < std::min<std::int64_t>(kQuad, outputs - quad * kQuad); ++i) {
            const std::uint32_t* from = w.row(matrix_row(quad * kQuad + i, phase.taps[tap], shape)) + first;
            for (std::int64_t lane = 0; lane < std::min<std::int64_t>(kLanes, inputs - first); ++lane) {
              to[lane * kQuad + i] = FixedPoint::byte(from[lane], plane);
            }
          }
        }
      }
    }
  }
}

// Sums over the output channels at one tap, a column for each input channel.
struct TapSums {
  std::array<std::vector<std::int64_t>, kPlanes> bytes;
  std::vector<double> value;

  TapSums(const FixedPoint& w, const ConvShape& shape, const Tap& tap, std::int64_t outputs)
      : value(static_cast<std::size_t>(shape.weight[1])) {
    for (auto& sums : bytes) sums.resize(value.size());
    for (std::int64_t output = 0; output < outputs; ++output) {
      const std::int64_t row = matrix_row(output, tap, shape);
      for (std::size_t c = 0; c < value.size(); ++c) {
        for (int plane = 0; plane < kPlanes; ++plane) {
          bytes[static_cast<std::size_t>(plane)][c] +=
              FixedPoint::byte(w.row(row)[c], plane) - FixedPoint::centre(plane);
        }
        value[c] += w.value(row, static_cast<std::int64_t>(c));
      }
    }
  }
};

GradientEpilogue make_epilogue(const FixedPoint& w, const ConvShape& shape, const Phase& phase,
                               const Affine& dy, std::int64_t outputs) {
  GradientEpilogue e;
  e.channels = shape.weight[1];
  e.padded = vectors_for(e.channels) * kLanes;
  e.col_classes = phase.col_valid.size();
  const auto channels = static_cast<std::size_t>(e.channels), padded = static_cast<std::size_t>(e.padded);
  e.scale.resize(padded);
  e.box_scale.resize(padded);
  for (auto& by_class : e.class_sum) by_class.resize(phase.classes() * padded);
  e.class_value.resize(phase.classes() * padded);
  for (std::size_t c = 0; c < channels; ++c) {
    e.scale[c] = static_cast<float>(dy.scale * w.scale[c]);
    e.box_scale[c] = static_cast<float>(dy.scale * w.middle[c]);
  }
  std::vector<TapSums> sums;
  for (const Tap& tap : phase.taps) sums.emplace_back(w, shape, tap, outputs);
  e.class_terms.resize(phase.classes());
  const std::int32_t d = dy.shift - dy.zero;
  for (std::size_t r = 0; r < phase.row_valid.size(); ++r) {
    for (std::size_t col = 0; col < phase.col_valid.size(); ++col) {
      const std::size_t at = (r * phase.col_valid.size() + col) * padded;
      for (std::size_t c = 0; c < channels; ++c) {
        std::array<std::int64_t, kPlanes> bytes{};
        std::int64_t terms = 0;
        double value = 0;
        for (std::size_t tap = 0; tap < phase.taps.size(); ++tap) {
          if (!phase.valid(phase.taps[tap], r, col)) continue;
          for (std::size_t plane = 0; plane < kPlanes; ++plane) bytes[plane] += sums[tap].bytes[plane][c];
          value += sums[tap].value[c];
          terms += outputs;
        }
        for (std::size_t plane = 0; plane < kPlanes; ++plane) {
          e.class_sum[plane][at + c] = static_cast<std::int32_t>(d * bytes[plane]);
        }
        e.class_terms[at / padded] = static_cast<std::int32_t>(terms * d);
        e.class_value[at + c] = static_cast<float>(dy.residual * value);
      }
    }
  }
  return e;
}

// By planes: any shape.
void planes_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                     const GradientTarget& to, const TileKernels& tiles) {
  const Plan plan = input_gradient_plan(shape);
  const std::int64_t outputs = shape.weight[0] / shape.groups, inputs = shape.weight[1];
  const std::int64_t positions = shape.weight[2] * shape.weight[3];
  const Affine error = Affine::of(dy);
  std::vector<PhaseOperands<GradientEpilogue>> operands;
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    std::vector<Affine> rows;
    for (std::int64_t row = 0; row < outputs * positions; ++row) {
      rows.push_back(Affine::of(w, group * outputs + row / positions));
    }
    const FixedPoint fixed(w.code.data_ptr<std::uint8_t>() + group * outputs * positions * inputs,
                           std::move(rows), inputs);
    for (const Phase& phase : plan.phases) {
      operands.push_back(
          {PackedWeights(kPlanes * vectors_for(inputs), static_cast<std::int64_t>(phase.taps.size()),
                         quads_for(outputs), /*threes=*/true),
           make_epilogue(fixed, shape, phase, error, outputs)});
      pack_weights(fixed, shape, phase, outputs, operands.back().weights);
    }
  }
  const DenseCall call{dy.code.data_ptr<std::uint8_t>(),
                       shape.input[0],
                       shape.groups,
                       outputs,
                       inputs,
                       error.shift,
                       to.dx,
                       to.watcher,
                       to.adds ? to.dx : to.pixels};
  DenseWalk<GradientEpilogue>(plan, call, operands, tiles).run(kPlanes * shape.macs() * shape.input[0]);
}

}  // namespace

at::Tensor conv2d_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                                 const at::Tensor& onto, ImageWatcher* watcher, const TileKernels& tiles) {
  const bool whole = onto.defined() && onto.sizes() == shape.input;
  const bool takes = onto.defined() && onto.is_contiguous(at::MemoryFormat::ChannelsLast);
  const bool adds = takes && whole, adds_later = onto.defined() && !takes;
  at::Tensor dx =
      adds ? onto : at::empty(shape.input, dy.scale.options().memory_format(at::MemoryFormat::ChannelsLast));
  const GradientTarget to{dx, adds, takes && !whole ? onto : at::Tensor(), adds_later ? nullptr : watcher};
  const bool unit_stride = shape.stride[0] == 1 && shape.stride[1] == 1;
  if (suits_winograd(shape, kInputGradientsWorth)) {
    conv2d_winograd_gradient(dy, w, shape, to, tiles);
  } else if (shape.weight[3] >= 3 && unit_stride) {
    conv2d_scaled_gradient(dy, w, shape, to, tiles);
  } else {
    planes_gradient(dy, w, shape, to, tiles);
  }
  return adds_later ? add_onto(dx, onto, shape) : dx;
}

}  // namespace lowtide::integer
