#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lowtide/nn/quant_layer.h"

namespace lowtide {

// Which elements of the gradient at the output share a range: all of them; or, where x is batch × length × features, those
// at the same position of their items.
enum class ErrorRange { kTensor, kPosition };

struct QuantLinearOptions {
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  ErrorRange error = ErrorRange::kTensor;
  bool bias = true;
};

// y = x·weightᵀ + bias over the last dimension of x, computed as `layer` says. The bias is undefined where there is none;
// `input_range` is the running one of x, which training moves.
at::Tensor quant_linear(const QuantLayer& layer, LayerInput& x, const at::Tensor& weight,
                        const at::Tensor& bias, ErrorRange error, const ActivationRange& input_range,
                        bool training);

// y = x·wᵀ + b over the last dimension of x, with weight (a range per output row), bias and input (a range
// per tensor) and output gradient (as the options say; rounded stochastically) quantised.
class QuantLinearImpl : public torch::nn::Module, public QuantLayer {
 public:
  explicit QuantLinearImpl(const QuantLinearOptions& options);
  at::Tensor forward(const Activation& x);
  at::Tensor read(LayerInput& x);  // the same, of what other layers read too
  const ActivationRange& input_range() const { return input_range_; }

  const QuantLinearOptions options;
  at::Tensor weight;
  at::Tensor bias;  // undefined without one

 private:
  ActivationRange input_range_;
};
TORCH_MODULE(QuantLinear);

}  // namespace lowtide
