#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lowtide/base/kept_memory.h"
#include "lowtide/engine/engine.h"
#include "lowtide/engine/integer/affine.h"
#include "lowtide/engine/integer/tuning.h"

namespace lowtide::integer {

// What is subtracted from the codes before they are multiplied.
struct CodeBiases {
  std::int32_t error = 0, input = 0;
};

// Both operands of a weight gradient, channels last.
struct GradientCodes {
  const std::uint8_t* input = nullptr;
  const std::uint8_t* error = nullptr;
  CodeBiases biases;
};

// What turns a weight gradient's integer sums into values. With dy = s (q - z) + e and x = sx (qx - zx) + ex, over
// the N pixels that a tap covers (tap_sums.h),
//
//   Σ dy·x = s sx Σ (q - z)(qx - zx) + s ex Σ (q - z) + sx e Σ (qx - zx) + N e ex.
//
// The sums of qx alone, for every channel and tap, are given. Those of q are taken here where they count. They do not if the
// input's bias is its zero point and its residual is 0, as after a ReLU.
class GradientSums {
 public:
  GradientSums(const Quantized& dy, const Quantized& x, const ConvShape& shape, const CodeBiases& biases,
               KeptVector<std::int64_t> input_sums);

  // Sums Σ (q - bias)(qx - bias) of one output channel and tap, of input channels from `first` on, become
  // values. Channels are counted over all groups.
  struct Row {
    const std::int64_t* sum = nullptr;
    std::int64_t step = 1;  // from a channel's sum to the next
    std::int64_t output = 0, tap = 0, first = 0, channels = 0;
  };
  void values(const Row& row, float* out) const;

 private:
  Affine error_, input_;
  CodeBiases biases_;
  std::int64_t outputs_, inputs_;
  std::vector<std::int64_t> pixels_;                  // N, by tap
  KeptVector<std::int64_t> error_sums_, input_sums_;  // Σ q and Σ qx, [tap][channel]
};

// The sums of one group, and how far apart those of neighbours stand.
struct StridedSums {
  const std::int64_t* sum = nullptr;
  std::int64_t output_step = 0, tap_step = 0, input_step = 0;

  template <typename Take>
  void runs(std::int64_t output, std::int64_t tap, std::int64_t inputs, const Take& take) const {
    take(0, inputs, sum + output * output_step + tap * tap_step, input_step);
  }
};

// Sums has: runs(output, tap, inputs, take), which calls take(first, count, sum, step) for the input channels whose
// sums stand a step apart.
template <typename Sums>
void write_weight_gradient(const ConvShape& shape, const GradientSums& edges, std::int64_t group,
                           const Sums& total, at::Tensor& dw) {
  const std::int64_t taps = shape.weight[2] * shape.weight[3];
  const std::int64_t inputs = shape.weight[1], outputs = shape.weight[0] / shape.groups;
  float* out = dw.data_ptr<float>() + group * outputs * taps * inputs;
  const std::int64_t grain = std::max<std::int64_t>(1, kValuesPerThread / (inputs * taps));
  at::parallel_for(0, outputs, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        float* to = out + (o * taps + tap) * inputs;
        total.runs(o, tap, inputs,
                   [&](std::int64_t first, std::int64_t count, const std::int64_t* sum, std::int64_t step) {
                     edges.values({.sum = sum,
                                   .step = step,
                                   .output = group * outputs + o,
                                   .tap = tap,
                                   .first = group * inputs + first,
                                   .channels = count},
                                  to + first);
                   });
      }
    }
  });
}

inline at::Tensor empty_weight_gradient(const Quantized& dy, const ConvShape& shape) {
  return at::empty(shape.weight, dy.scale.options().memory_format(at::MemoryFormat::ChannelsLast));
}

}  // namespace lowtide::integer
