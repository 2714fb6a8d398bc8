#pragma once

#include "lowtide/engine/cpu/normalisation.h"
#include "lowtide/engine/integer.h"

namespace lowtide::integer {

// The passes in as few walks through memory as there can be: statistics and gradients' sums are taken of each image while
// it still lies in its core's cache, and between a normalisation and the next convolution there are codes, never floats.
class FusedConvNorm final : public ConvNorm {
 public:
  FusedConvNorm(const IntegerEngine& engine, ConvNormCall call);

  const at::Tensor& output() const override { return y_; }
  Range range() override;
  Quantized encode(const Range& range, DeviceBits bits) override;
  LayerInput add(const at::Tensor& residual, DeviceBits reader) override;
  NormGradients norm_gradient(at::Tensor gradient, const ErrorFormat& format, bool wants_residual) override;
  at::Tensor weight_gradient(const Quantized& error) override;
  at::Tensor input_gradient(const Quantized& error, const OtherGradient& other, ConvNorm* producer) override;

 private:
  void keep_for_backward();
  cpu::MapBackward& backward();  // to be shown the gradient at the result

  const IntegerEngine& engine_;
  ConvNormCall call_;
  at::Tensor y_;  // the convolution's output
  cpu::ChannelStatistics statistics_;
  cpu::Normalisation norm_;
  at::Tensor positive_;  // see cpu::MappedSum
  std::unique_ptr<cpu::MapBackward> backward_;
};

}  // namespace lowtide::integer
