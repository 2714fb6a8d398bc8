#pragma once

#include "lowtide/engine/cuda/prepared_conv.h"
#include "lowtide/engine/cuda/weight_gradients.h"
#include "lowtide/engine/engine.h"

namespace lowtide::cuda {

// The passes on a GPU: statistics and gradients' sums are taken of a convolution's result before it leaves the
// multiprocessors, ranges come with them, and between a normalisation and the next convolution there are codes, never floats.
// Small images stay on a multiprocessor from a convolution to the next one's codes; then nothing is computed before those are asked
// for.
class FusedConvNorm final : public ConvNorm {
 public:
  FusedConvNorm(const Engine& engine, ConvNormCall call, std::shared_ptr<const PreparedCudaConv> conv,
                WeightGradients& weight_gradients);

  const at::Tensor& output() const override { return y_; }
  Range range() override;
  Quantized encode(const Range& range, DeviceBits bits) override;
  MeasuredCodes encode_measured(DeviceBits bits) override;
  LayerInput add(const at::Tensor& residual, DeviceBits reader) override;
  NormGradients norm_gradient(at::Tensor gradient, const ErrorFormat& format, bool wants_residual) override;
  at::Tensor weight_gradient(const Quantized& error) override;
  at::Tensor input_gradient(const Quantized& error, const OtherGradient& other, ConvNorm* producer) override;
  NormGradients producer_gradient(const Quantized& error, const OtherGradient& other, ConvNorm& producer,
                                  const ErrorFormat& format, bool wants_residual) override;

 private:
  // The convolution, where it was put off.
  void convolve_now();
  at::Tensor convolve(bool with_statistics) const;
  OutputArguments output_arguments(bool with_statistics) const;
  at::Tensor empty_output(at::ScalarType type) const;
  // Of images that stay: what both ways forward begin with.
  ResidentForwardArguments resident_arguments();
  Quantized encode_resident(const Range* given, const Range& found, DeviceBits bits);
  LayerInput add_resident(const at::Tensor& residual, DeviceBits reader);
  InputGradientArguments gradient_arguments(const Quantized& error, const at::Tensor& other,
                                            const std::array<std::int64_t, 2>& stride) const;
  // Of the norm's gradient: where it goes.
  NormGradientArguments error_arguments(const ErrorFormat& format);
  NormGradients parameter_gradients() const;
  NormGradients error_codes(NormGradientArguments& arguments, const ErrorFormat& format);
  Activation normalise(const at::Tensor& residual, at::Tensor* positive);
  NormAddArguments sum_arguments(const at::Tensor& residual, const at::Tensor& value,
                                 at::Tensor* positive) const;
  void keep_for_backward();
  // What the gradient at the result is summed up into; the convolution's output is there then.
  NormGradientSums gradient_sums();

  const Engine& engine_;
  WeightGradients& weight_gradients_;
  ConvNormCall call_;
  std::shared_ptr<const PreparedCudaConv> conv_;
  ConvGeometry geometry_;
  at::Tensor y_;         // the convolution's output, as long as it is kept
  at::Tensor positive_;  // which elements ReLU let pass, a bit each, where a residual was added
  at::Tensor summed_;    // the gradient whose sums were taken while it was computed
};

}  // namespace lowtide::cuda
