#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lowtide/nn/dropout.h"

namespace lowtide {

// Layer normalisation (Ba et al. 2016) over the last dimension, fp32.
class LayerNormImpl : public torch::nn::Module {
 public:
  LayerNormImpl(std::int64_t size, double epsilon);
  at::Tensor forward(const at::Tensor& x) const;

  // forward(x + dropout(added)).
  at::Tensor forward(const at::Tensor& x, const at::Tensor& added, const Dropout& dropout) const;

  double epsilon() const { return epsilon_; }

  at::Tensor weight, bias;

 private:
  double epsilon_;
};
TORCH_MODULE(LayerNorm);

}  // namespace lowtide
