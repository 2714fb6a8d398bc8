#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lowtide/nn/quant_layer.h"

namespace lowtide {

struct QuantLinearOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  bool bias = true;
};

// y = x·wᵀ + b over the last dimension of x, with weight (a range per output row), bias and input (a range
// per tensor) and output gradient (likewise, or one per position where x is batch × length × features; rounded
// stochastically) quantised.
class QuantLinearImpl : public torch::nn::Module, public QuantLayer {
 public:
  explicit QuantLinearImpl(const QuantLinearOptions& options);
  at::Tensor forward(const Activation& x);

  const QuantLinearOptions options;
  at::Tensor weight;
  at::Tensor bias;  // undefined without one

 private:
  ActivationRange input_range_;
};
TORCH_MODULE(QuantLinear);

}  // namespace lowtide
