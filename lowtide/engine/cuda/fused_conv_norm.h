#pragma once

#include "lowtide/engine/cuda/prepared_conv.h"
#include "lowtide/engine/cuda/side_stream.h"
#include "lowtide/engine/engine.h"

namespace lowtide::cuda {

// The passes on a GPU: statistics and gradients' sums are taken of a convolution's result before it leaves the
// multiprocessors, ranges come with them, and between a normalisation and the next convolution there are codes, never floats.
class FusedConvNorm final : public ConvNorm {
 public:
  FusedConvNorm(const Engine& engine, ConvNormCall call, std::shared_ptr<const PreparedCudaConv> conv, SideStream& aside);

  const at::Tensor& output() const override { return y_; }
  Range range() override;
  Quantized encode(const Range& range, DeviceBits bits) override;
  Activation add(const at::Tensor& residual) override;
  NormGradients norm_gradient(at::Tensor gradient, const ErrorFormat& format, bool wants_residual) override;
  at::Tensor weight_gradient(const Quantized& error) override;
  at::Tensor input_gradient(const Quantized& error, const OtherGradient& other, ConvNorm* producer) override;

 private:
  at::Tensor convolve(bool with_statistics) const;
  Activation normalise(const at::Tensor& residual, at::Tensor* positive);
  void keep_for_backward();
  // What the gradient at the result is summed up into; the convolution's output is there then.
  NormGradientSums gradient_sums();

  const Engine& engine_;
  SideStream& aside_;
  ConvNormCall call_;
  std::shared_ptr<const PreparedCudaConv> conv_;
  ConvGeometry geometry_;
  at::Tensor y_;         // the convolution's output
  at::Tensor positive_;  // which elements ReLU let pass, a bit each, where a residual was added
  at::Tensor summed_;    // the gradient whose sums were taken while it was computed
};

}  // namespace lowtide::cuda
