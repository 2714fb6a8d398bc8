#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lowtide/nn/dropout_kernels.h"
#include "lowtide/nn/quant_layer.h"

namespace lowtide {

// Sets a share of the elements to zero in training and scales the others up, so that the expectation stays. Which ones is
// a function of (seed, step, layer, call, element) alone.
class DropoutImpl : public torch::nn::Module, public AttachedLayer {
 public:
  explicit DropoutImpl(double share) : share_(share) {}
  at::Tensor forward(const at::Tensor& x) const;

  // The noise of a call, for kernels that do dropout among other things.
  DropoutNoise draw() const;

 private:
  double share_;
};
TORCH_MODULE(Dropout);

}  // namespace lowtide
