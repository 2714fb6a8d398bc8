#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <utility>

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

// A convolution whose weight (a range per output channel), input (a range per tensor) and output gradient
// (likewise, rounded stochastically) are quantised. The bias stays fp32.
class QuantConv2dImpl : public torch::nn::Module, public QuantLayer {
 public:
  explicit QuantConv2dImpl(const QuantConv2dOptions& options);
  Activation forward(const Activation& x);

  // The convolution of x, and x itself for a second reader: what comes back from there is added to the input's gradient
  // while that is computed.
  std::pair<Activation, Activation> branch(const Activation& x);

  const QuantConv2dOptions options;
  at::Tensor weight;
  at::Tensor bias;  // undefined without one

 private:
  Activation forward_normalised(const c10::intrusive_ptr<NormCall>& norm);
  c10::intrusive_ptr<ConvCall> start(const at::Tensor& x) const;
  Activation finish(at::Tensor y, const c10::intrusive_ptr<ConvCall>& call) const;

  ActivationRange input_range_;
};
TORCH_MODULE(QuantConv2d);

}  // namespace lowtide
