#include <cmath>

#include "lowtide/base/lanes.h"
#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/dense.h"
#include "lowtide/engine/integer/products.h"
#include "lowtide/engine/integer/winograd_walk.h"

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

// sum[pixel] = Σ (code - zero) over its channels
LOWTIDE_SIMD void sum_channels(const std::uint8_t* code, std::int64_t pixels, std::int64_t channels,
                               std::int32_t zero, std::int32_t* sum) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, code += channels) {
    std::int32_t total = 0;
    for (std::int64_t c = 0; c < channels; ++c) total += code[c];
    sum[pixel] = total - zero * static_cast<std::int32_t>(channels);
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

// One output channel's codes less their zero, transformed.
void transform_lane(const GroupWeights& w, const Block& block, std::int64_t lane, std::int32_t zero,
                    const WinogradKernels& kernels, WinogradWeights& transformed) {
  alignas(kVectorBytes) std::int16_t value[9 * kPairVector], points[kPoints * kPairVector];
  const std::uint8_t* code = w.code + (block.first * kLanes + lane) * 9 * w.inputs;
  for (std::int64_t c = 0; c < w.inputs; c += kPairVector) {
    for (std::int64_t place = 0; place < 9; ++place) {
      for (std::int64_t i = 0; i < kPairVector; ++i) {
        value[place * kPairVector + i] = static_cast<std::int16_t>(code[place * w.inputs + c + i] - zero);
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

// Codes less their zeros, transformed. Returns the largest of them.
std::int32_t transform_weights(const GroupWeights& w, const std::vector<Affine>& rows, std::int32_t top,
                               const WinogradKernels& kernels, WinogradWeights& transformed) {
  std::int32_t largest = 0;
  for (const Affine& row : rows) largest = std::max({largest, row.zero, top - row.zero});
  for (const Block& block : transformed.blocks) {
    for_each_piece(block.vectors * kLanes, 16, [&](std::int64_t lane) {
      transform_lane(w, block, lane, rows[static_cast<std::size_t>(block.first * kLanes + lane)].zero,
                     kernels, transformed);
    });
  }
  return largest;
}

// Makes floats of sums that winograd.h gave: codes are recentred before, so the epilogue has nothing to shift.
class WinogradOutput {
 public:
  WinogradOutput(const Plan& plan, const Quantized& x, const OutputEpilogue& epilogue, at::Tensor& y)
      : plan_(plan),
        code_(x.code.data_ptr<std::uint8_t>()),
        channels_(x.code.size(1)),
        zero_(Affine::of(x).zero),
        epilogue_(epilogue),
        y_(y) {
    for (const Tap& tap : plan.phases[0].taps) {
      taps_.push_back(static_cast<std::int32_t>((tap.row * plan.packed_cols + tap.col) * kQuad));
    }
  }

  struct Images {
    const WinogradOutput& of;
    std::int64_t first;
    const std::int32_t* box;  // [image][row][column]

    void finish(const WinogradRow& r) const { of.finish(r, box + (r.item - first) * of.pixels()); }
  };

  Images images(std::int64_t first, std::int64_t count) const {
    thread_local Scratch<std::int32_t> box_memory, sum_memory;
    std::int32_t* box = box_memory.at_least(count * pixels());
    std::int32_t* sums = sum_memory.at_least(plan_.packed_rows * plan_.packed_cols);
    std::fill_n(sums, plan_.packed_rows * plan_.packed_cols, 0);
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t row = 0; row < plan_.source_rows; ++row) {
        sum_channels(code_ + ((first + i) * plan_.source_rows + row) * plan_.source_cols * channels_,
                     plan_.source_cols, channels_, zero_,
                     sums + (row + plan_.top) * plan_.packed_cols + plan_.left);
      }
      for (std::int64_t row = 0; row < plan_.out_rows; ++row) {
        sum_taps(sums + row * plan_.packed_cols, taps_.data(), taps_.size(), plan_.out_cols,
                 box + i * pixels() + row * plan_.out_cols);
      }
    }
    return {*this, first, box};
  }

 private:
  std::int64_t pixels() const { return plan_.out_rows * plan_.out_cols; }

  void finish(const WinogradRow& r, const std::int32_t* box) const {
    const Phase& phase = plan_.phases[0];
    const std::int64_t row_floats = plan_.out_cols * epilogue_.channels;
    float* out = y_.data_ptr<float>() + (r.item * plan_.out_rows + r.row) * row_floats;
    epilogue_.row({r.block, r.sum, box + r.row * plan_.out_cols,
                   static_cast<std::size_t>(phase.row_class[static_cast<std::size_t>(r.row)]),
                   &phase.col_runs, out, epilogue_.channels});
  }

  const Plan& plan_;
  const std::uint8_t* code_;
  const std::int64_t channels_;
  const std::int32_t zero_;
  const OutputEpilogue& epilogue_;
  at::Tensor& y_;
  std::vector<std::int32_t> taps_;
};

void winograd_output(const Plan& plan, const Quantized& x, const GroupWeights& w, std::vector<Affine> rows,
                     int weight_bits, ImageWatcher* watcher, const TileKernels& tiles, at::Tensor& y) {
  Affine input = Affine::of(x);
  input.shift = input.zero;
  WinogradWeights transformed(1, w.inputs, y.size(1));
  const std::int32_t largest_weight =
      transform_weights(w, rows, (1 << weight_bits) - 1, tiles.winograd, transformed);
  const std::int32_t largest_input = std::max(input.zero, (1 << x.bits) - 1 - input.zero);
  OutputEpilogue epilogue = make_epilogue(w, plan.phases[0], input, rows);
  std::fill(epilogue.zero.begin(), epilogue.zero.end(), 0);
  const std::vector<std::uint8_t> outside(static_cast<std::size_t>(w.inputs),
                                          static_cast<std::uint8_t>(input.zero));
  WinogradCall call;
  call.source = {x.code.data_ptr<std::uint8_t>(), plan.source_rows, plan.source_cols, w.inputs,
                 outside.data()};
  call.centre = static_cast<std::int16_t>(input.zero);
  call.top = plan.top;
  call.left = plan.left;
  call.at_once = channels_at_once(w.inputs, (kWinogradLimit - 1) / (9 * largest_input * largest_weight));
  call.grid = {x.code.size(0), plan.out_rows, plan.out_cols};
  call.out = y;
  call.watcher = watcher;
  const WinogradOutput output(plan, x, epilogue, y);
  WinogradWalk<WinogradOutput>(call, transformed, output, tiles).run();
}

}  // namespace

at::Tensor conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape, ImageWatcher* watcher,
                  const TileKernels& tiles) {
  const Plan plan = output_plan(shape);
  const std::int64_t outputs = shape.weight[0] / shape.groups, inputs = shape.weight[1];
  at::Tensor y = at::empty({shape.input[0], shape.weight[0], plan.out_rows, plan.out_cols},
                           x.scale.options().memory_format(at::MemoryFormat::ChannelsLast));
  const Phase& phase = plan.phases[0];
  const auto taps = static_cast<std::int64_t>(phase.taps.size());
  const auto weights_of = [&](std::int64_t group) {
    return GroupWeights{w.code.data_ptr<std::uint8_t>() + group * outputs * taps * inputs, shape.weight[2],
                        shape.weight[3], inputs};
  };
  const auto rows_of = [&](std::int64_t group) {
    std::vector<Affine> rows;
    for (std::int64_t channel = 0; channel < outputs; ++channel) {
      rows.push_back(Affine::of(w, group * outputs + channel));
    }
    return rows;
  };
  if (suits_winograd(shape, 64)) {
    winograd_output(plan, x, weights_of(0), rows_of(0), w.bits, watcher, tiles, y);
    return y;
  }
  std::vector<PhaseOperands<OutputEpilogue>> operands;
  const Affine input = Affine::of(x);
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    const GroupWeights weights = weights_of(group);
    operands.push_back({PackedWeights(vectors_for(outputs), taps, quads_for(inputs)),
                        make_epilogue(weights, phase, input, rows_of(group))});
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
