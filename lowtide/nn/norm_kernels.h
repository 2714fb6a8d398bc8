#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "lowtide/quant/quantizer.h"

namespace lowtide::cpu {

// What surrounds a convolution on the CPU, in as few passes over memory as there can be: batch normalisation, the
// residual, ReLU, the ranges for the quantiser, and the way back. All tensors are channels-last. Sums are cut by size
// alone, so results do not depend on the number of threads.

// Of each channel; NaN where the channel holds anything that is not finite.
struct ChannelStatistics {
  std::vector<float> mean, variance;  // the variance biased
  std::vector<float> low, high;
};
ChannelStatistics channel_statistics(const at::Tensor& x);

// z = (x - mean) · factor + bias, then ReLU perhaps.
struct ChannelMap {
  std::vector<float> mean, factor, bias;
  bool relu = false;

  // Of all z. Rounding keeps order, so a channel's extremes are met where those of x are: to the bit what a pass
  // over all z would find.
  Range range(const ChannelStatistics& x) const;
};

// The codes of z, without z ever being written.
Quantized encode_mapped(const at::Tensor& x, const ChannelMap& map, const Range& range, int bits);

// z itself, added to the residual where there is one (before ReLU).
struct MappedSum {
  at::Tensor value;
  Range range;
  at::Tensor
      positive;  // which elements ReLU let pass, a bit each; undefined without a residual or without ReLU
};
MappedSum map_and_add(const at::Tensor& x, const ChannelMap& map, const at::Tensor& residual);

// The gradient at x from that at the result, through ReLU and normalisation by the batch's own statistics.
struct MapGradients {
  at::Tensor input;
  Range input_range;
  at::Tensor weight, bias;
  at::Tensor residual;  // the gradient before the normalisation; undefined unless asked for
};
// `positive` as map_and_add gave it; where it gave none, ReLU's sign is found again from x.
MapGradients map_backward(const at::Tensor& gradient, const at::Tensor& x, const ChannelMap& map,
                          const std::vector<float>& inverse_deviation, const at::Tensor& positive,
                          bool wants_residual);

}  // namespace lowtide::cpu
