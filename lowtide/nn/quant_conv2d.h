#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lowtide/nn/quant_layer.h"

namespace lowtide {

struct QuantConv2dOptions {
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;
  bool bias = false;
};

// y = x ∗ weight + bias, computed as `layer` says. The bias is undefined where there is none; `input_range` is the running one
// of x, which training moves.
at::Tensor quant_conv2d(const QuantLayer& layer, LayerInput& x, const at::Tensor& weight,
                        const at::Tensor& bias, const ConvShape& shape, const ActivationRange& input_range,
                        bool training);

// A convolution whose weight (a range per output channel), input (a range per tensor) and output gradient
// (likewise, rounded stochastically) are quantised. The bias stays fp32.
class QuantConv2dImpl : public torch::nn::Module, public QuantLayer {
 public:
  explicit QuantConv2dImpl(const QuantConv2dOptions& options);
  at::Tensor forward(const Activation& x);

  // For a trunk, which computes convolutions together with what surrounds them.
  ConvShape shape(at::IntArrayRef input) const;
  const ActivationRange& input_range() const { return input_range_; }

  const QuantConv2dOptions options;
  at::Tensor weight;
  at::Tensor bias;  // undefined without one

 private:
  ActivationRange input_range_;
};
TORCH_MODULE(QuantConv2d);

}  // namespace lowtide
