#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "lowtide/base/kept_memory.h"
#include "lowtide/engine/cpu/image_watcher.h"
#include "lowtide/quant/quantizer.h"

namespace lowtide::cpu {

// What surrounds a convolution on the CPU, in as few passes over memory as there can be: batch normalisation, the
// residual, ReLU, the ranges for the quantiser, and the way back. All tensors are channels-last. Sums are cut by size
// alone, so results do not depend on the number of threads.
struct Layout;
struct MapTables;

// A number for every lane of every chunk (norm_layout.h); nothing is there before it is written.
using LaneTable = KeptArray<float>;

// Of each channel; NaN where the channel holds anything that is not finite.
struct ChannelStatistics {
  KeptVector<float> mean, variance;  // the variance biased
  KeptVector<float> low, high;
};

// Takes them of a tensor, or of a convolution's output while it is being computed.
class ChannelMoments final : public ImageWatcher {
 public:
  ChannelMoments();
  ~ChannelMoments() override;
  void begin(const at::Tensor& x) override;
  void image(std::int64_t index) override;

  // Of the tensor that was watched, and no other; where none was, by going through x now.
  ChannelStatistics of(const at::Tensor& x);

 private:
  void start(const at::Tensor& x);
  void take(std::int64_t chunk);
  ChannelStatistics joined() const;

  at::Tensor x_;
  bool watched_ = false;
  std::unique_ptr<Layout> layout_;
  LaneTable origin_, sum_, squares_, low_, high_;
};

// z = (x - mean) · factor + bias, then ReLU perhaps.
struct ChannelMap {
  KeptVector<float> mean, factor, bias;
  bool relu = false;

  // Of all z. Rounding keeps order, so a channel's extremes are where those of x are: to the bit what a pass
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

// How far a channel's numbers lie from the mean they are normalised by.
struct ChannelScatter {
  KeptVector<float> inverse_deviation;
  KeptVector<float> max_deviation;  // the greatest |x - mean|
  bool of_batch = true;             // mean and deviation are those of x itself, and move with it
};

// The gradient at x from that at the result, through ReLU and normalisation.
struct MapGradients {
  at::Tensor input;       // undefined where its codes were asked for
  Quantized input_codes;  // undefined unless asked for
  Range input_range;
  at::Tensor weight, bias;
  at::Tensor residual;  // the gradient before the normalisation; undefined unless asked for
};

// Half of it can be done while the gradient at the result is being computed. What ReLU stopped is then set to zero in
// that gradient itself.
class MapBackward final : public ImageWatcher {
 public:
  // `positive` as map_and_add gave it; where it gave none, ReLU's sign is found again from x.
  MapBackward(at::Tensor x, const ChannelMap& map, ChannelScatter scatter, at::Tensor positive);
  ~MapBackward() override;
  void begin(const at::Tensor& gradient) override;
  void image(std::int64_t index) override;
  const float* prefetch_hint(std::int64_t index) const override;

  // From the gradient that was watched; where none was, by going through this one now.
  MapGradients of(const at::Tensor& gradient, bool wants_residual,
                  const std::optional<ChunkEncoder::Format>& as_codes = std::nullopt);

 private:
  void take(std::int64_t chunk, const float* gradient, float* masked);
  struct Terms;  // of dx, for every lane
  Terms finish_sums(const at::Tensor& masked, MapGradients& result) const;
  Range range_of_gradient(const Terms& terms) const;
  Range write_gradient(const Terms& terms, float* dx) const;
  Quantized encode_gradient(const Terms& terms, const Range& range, const ChunkEncoder::Format& format) const;
  bool masks() const { return relu_ && !positive_.defined(); }  // by the sign that is found again from x

  const at::Tensor x_, positive_;
  const bool relu_;
  const ChannelScatter scatter_;
  const std::unique_ptr<const Layout> layout_;
  const std::unique_ptr<const MapTables> tables_;
  LaneTable sum_, product_, low_, high_;
  at::Tensor watched_;
};

}  // namespace lowtide::cpu
