#include <cmath>
#include <cstring>

#include "lowtide/base/lanes.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/conv_methods.h"
#include "lowtide/engine/integer/tuning.h"
#include "lowtide/engine/integer/weight_classes.h"
#include "lowtide/engine/integer/winograd_walk.h"

// The input gradient by winograd.h. It sums over output channels, whose weights have a scale each: so a weight becomes a
// whole number of steps of a scale that all weights of its *input* channel share,
//
//   w ≈ step (high · parts + low),
//
// two limbs of 16 bits that are summed each for itself. With dy = s (q - z) + e,
//
//   Σ dy·w = s step (parts Σ (q - z) high + Σ (q - z) low) + e Σ w.
//
// The only rounding besides that of floats is a weight's to half a step, one in some 250,000 of the channel's largest weight.

namespace lowtide::integer {
namespace {

// `high` and `low` are within ±most: their sums over so many channels are to stay within kWinogradLimit, and what the
// transform makes of them within 16 bits.
struct Split {
  std::int64_t channels = 0;  // at once
  std::int32_t most = 0;
  std::int32_t parts = 0;  // of which `high` counts: 2 · most

  Split(std::int64_t outputs, std::int32_t largest_error) {
    constexpr std::int64_t kFine = 350;  // 2 · 350² = 245,000 steps
    channels = channels_at_once(outputs, (kWinogradLimit - 1) / (kTaps * largest_error * (kFine + 1)));
    // One more than `most` may come of rounding.
    most = static_cast<std::int32_t>(
        std::min(kMostShort / kKernelGrowth, (kWinogradLimit - 1) / (kTaps * largest_error * channels)) - 1);
    parts = 2 * most;
  }
};

LOWTIDE_SIMD void widen(const std::uint8_t* code, const Affine& row, std::int64_t inputs, float* largest) {
  const float scale = row.scale, residual = static_cast<float>(row.residual);
  const std::int32_t zero = row.zero_point;
  for (std::int64_t tap = 0; tap < kTaps; ++tap, code += inputs) {
    for (std::int64_t c = 0; c < inputs; ++c) {
      const float value = std::fabs(scale * static_cast<float>(code[c] - zero) + residual);
      largest[c] = value > largest[c] ? value : largest[c];
    }
  }
}

// One tap of sixteen input channels, written kPair apart: the other of each pair is another output channel's.
LOWTIDE_SIMD void split(const std::uint8_t* code, const Affine& row, const float* inverse, const Split& by,
                        std::int16_t* high, std::int16_t* low) {
  const float scale = row.scale, residual = static_cast<float>(row.residual);
  const float parts = static_cast<float>(by.parts), part = 1 / parts;
  const std::int32_t zero = row.zero_point;
  for (int lane = 0; lane < kLanes; ++lane) {
    const float steps =
        std::nearbyint((scale * static_cast<float>(code[lane] - zero) + residual) * inverse[lane]);
    const float whole = std::nearbyint(steps * part);
    high[lane * kPair] = static_cast<std::int16_t>(static_cast<std::int32_t>(whole));
    low[lane * kPair] = static_cast<std::int16_t>(static_cast<std::int32_t>(steps - whole * parts));
  }
}

struct SplitRow {
  const std::int32_t *high, *low;  // [pixel][vector][16]
  int vectors;
  const std::vector<Phase::Run>& runs;
  float parts;
  const float* step;         // s step, at the first vector
  const float* class_value;  // of column class 0, at the first vector
  std::int64_t class_step;
  float* out;
  std::int64_t out_step;
};

template <bool kAdds>
LOWTIDE_SIMD void finish(const SplitRow& r) {
  const std::int64_t sum_step = r.vectors * kLanes;
  for (int v = 0; v < r.vectors; ++v) {
    const Floats step = LOWTIDE_LOAD(Floats, r.step + v * kLanes);
    for (const Phase::Run& run : r.runs) {
      const Floats value = LOWTIDE_LOAD(Floats, r.class_value + run.of_class * r.class_step + v * kLanes);
      for (std::int64_t i = run.first; i < run.last; ++i) {
        const Ints high = LOWTIDE_LOAD(Ints, r.high + i * sum_step + v * kLanes);
        const Ints low = LOWTIDE_LOAD(Ints, r.low + i * sum_step + v * kLanes);
        Floats dx =
            (__builtin_convertvector(high, Floats) * r.parts + __builtin_convertvector(low, Floats)) * step +
            value;
        float* out = r.out + i * r.out_step + v * kLanes;
        if (kAdds) dx += LOWTIDE_LOAD(Floats, out);
        LOWTIDE_STORE(out, dx);
      }
    }
  }
}

class WinogradGradient {
 public:
  WinogradGradient(const Quantized& dy, const Quantized& w, const ConvShape& shape, const GradientTarget& to)
      : plan_(input_gradient_plan(shape)),
        outputs_(shape.weight[0]),
        inputs_(shape.weight[1]),
        error_(Affine::of(dy)),
        code_(w.code.data_ptr<std::uint8_t>()),
        split_(outputs_, error_.max_deviation(dy.bits)),
        rows_(affine_rows(w, 0, outputs_)),
        to_(to),
        out_(to.dx.data_ptr<float>()) {
    class_value_ = weight_class_values(plan_.phases[0], code_, rows_, inputs_, error_.residual);
  }

  void run(const Quantized& dy, const TileKernels& tiles) {
    const WinogradWeights weights = transform_weights(tiles.winograd);
    const WinogradCall call(plan_, dy, split_.channels, to_.dx, to_.watcher);
    WinogradWalk<WinogradGradient>(call, weights, *this, tiles).run();
  }

  struct Images {
    const WinogradGradient& of;
    void finish(const WinogradRow& row) const { of.finish_row(row); }
  };
  Images images(std::int64_t, std::int64_t) const { return {*this}; }

 private:
  // Steps of each input channel's weights; from here on those are counted in.
  KeptVector<float> set_steps() {
    KeptVector<float> largest(static_cast<std::size_t>(inputs_)), inverse(largest.size());
    float poison = 0;  // NaN once a row's range is: comparisons pass over it
    for (std::int64_t o = 0; o < outputs_; ++o) {
      const Affine& row = rows_[static_cast<std::size_t>(o)];
      widen(code_ + o * kTaps * inputs_, row, inputs_, largest.data());
      poison += static_cast<float>(row.residual) * 0.0f + row.scale * 0.0f;
    }
    const float most = static_cast<float>(split_.most) * static_cast<float>(split_.parts);
    step_.resize(largest.size());
    constexpr float kNothing = 1e-30f;  // the inverse of less might be infinite
    for (std::size_t c = 0; c < largest.size(); ++c) {
      inverse[c] = std::isfinite(poison) && largest[c] > kNothing ? most / largest[c] : 0;
      step_[c] = error_.scale * (largest[c] / most) + poison;
    }
    return inverse;
  }

  WinogradWeights transform_weights(const WinogradKernels& kernels) {
    const KeptVector<float> inverse = set_steps();
    WinogradWeights weights(2, outputs_, inputs_);
    parallel_for(outputs_ / kPair, kTransformedPairsPerThread, [&](std::int64_t pair) {
      for (const VectorBlock& block : weights.blocks) {
        for (int v = 0; v < block.vectors; ++v) {
          transform(pair, (block.first + v) * kLanes, inverse.data(), kernels,
                    weights.at(0, block, 0, pair) + v * kPairVector,
                    weights.at(1, block, 0, pair) + v * kPairVector, weights.point_step(block));
        }
      }
    });
    return weights;
  }

  // The kernels of two output channels and sixteen input channels, turned around: error and kernel run against each other.
  void transform(std::int64_t pair, std::int64_t first, const float* inverse, const WinogradKernels& kernels,
                 std::int16_t* high_to, std::int16_t* low_to, std::int64_t step) const {
    alignas(kVectorBytes) std::int16_t high[kTaps * kPairVector], low[kTaps * kPairVector];
    for (std::int64_t i = 0; i < kPair; ++i) {
      const std::int64_t o = pair * kPair + i;
      for (std::int64_t tap = 0; tap < kTaps; ++tap) {
        split(code_ + (o * kTaps + kTaps - 1 - tap) * inputs_ + first, rows_[static_cast<std::size_t>(o)],
              inverse + first, split_, high + tap * kPairVector + i, low + tap * kPairVector + i);
      }
    }
    kernels.kernel(high, high_to, step);
    kernels.kernel(low, low_to, step);
  }

  void finish_row(const WinogradRow& r) const {
    const Phase& phase = plan_.phases[0];
    const std::int64_t first = r.block.first * kLanes;
    const auto row_class = phase.row_class[static_cast<std::size_t>(r.row)];
    const auto col_classes = static_cast<std::int64_t>(phase.col_valid.size());
    const auto finish_pixels = to_.accumulates ? finish<true> : finish<false>;
    finish_pixels({.high = r.sum,
                   .low = r.sum + r.limb_step,
                   .vectors = r.block.vectors,
                   .runs = phase.col_runs,
                   .parts = static_cast<float>(split_.parts),
                   .step = step_.data() + first,
                   .class_value = class_value_.data() + row_class * col_classes * inputs_ + first,
                   .class_step = inputs_,
                   .out = out_ + (r.item * plan_.out_rows + r.row) * plan_.out_cols * inputs_ + first,
                   .out_step = inputs_});
  }

  const Plan plan_;
  const std::int64_t outputs_, inputs_;
  const Affine error_;
  const std::uint8_t* code_;
  const Split split_;
  const KeptVector<Affine> rows_;
  KeptVector<float> class_value_;
  KeptVector<float> step_;
  const GradientTarget to_;
  float* const out_;
};

}  // namespace

void winograd_input_gradient(const Quantized& dy, const Quantized& w, const ConvShape& shape,
                             const GradientTarget& to, const TileKernels& tiles) {
  WinogradGradient(dy, w, shape, to).run(dy, tiles);
}

}  // namespace lowtide::integer
