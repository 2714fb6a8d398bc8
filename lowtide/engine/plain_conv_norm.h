#pragma once

#include "lowtide/engine/engine.h"

namespace lowtide {

class PlainNorm;

// The passes by an engine's convolutions and plain operations on tensors, one after the other, on any device: the reference.
class PlainConvNorm final : public ConvNorm {
 public:
  PlainConvNorm(const Engine& engine, ConvNormCall call);
  ~PlainConvNorm() override;

  const at::Tensor& output() const override { return y_; }
  Range range() override;
  Quantized encode(const Range& range, DeviceBits bits) override;
  Activation add(const at::Tensor& residual, DeviceBits reader) override;
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
