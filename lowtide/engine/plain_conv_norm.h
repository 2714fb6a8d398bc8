#pragma once

#include "lowtide/engine/engine.h"

namespace lowtide {

class PlainNorm;

// The passes one after the other, on any device, by an engine's convolutions and plain operations on tensors: the reference. On a
// CPU sums of batch normalisation are those of `cpu::ChannelMoments`, which do not depend on the number of threads.
class PlainConvNorm final : public ConvNorm {
 public:
  PlainConvNorm(const Engine& engine, ConvNormCall call);
  ~PlainConvNorm() override;

  const at::Tensor& output() const override { return y_; }
  Range range() override;
  Quantized encode(const Range& range, DeviceBits bits) override;
  LayerInput add(const at::Tensor& residual, DeviceBits reader) override;
  NormGradients norm_gradient(at::Tensor gradient, const ErrorFormat& format, bool wants_residual) override;
  at::Tensor weight_gradient(const Quantized& error) override;
  at::Tensor input_gradient(const Quantized& error, const OtherGradient& other, ConvNorm* producer) override;

 private:
  const at::Tensor& result();  // after normalisation and ReLU
  void keep_for_backward();

  const Engine& engine_;
  ConvNormCall call_;
  at::Tensor y_;  // the convolution's output
  at::Tensor z_;  // what was made of it
  std::unique_ptr<PlainNorm> norm_;
};

}  // namespace lowtide
