#pragma once

#include <memory>

#include "lowtide/engine/engine.h"

namespace lowtide {

// Is shown what the three products of a convolution or a linear layer are made of, and what its gradients are.
class ProductObserver {
 public:
  virtual ~ProductObserver() = default;
  virtual void forward(const Quantized& input, const Quantized& weight) = 0;
  virtual void input_gradient(const at::Tensor& gradient) = 0;
  virtual void weight_gradient(const Quantized& error, const at::Tensor& gradient) = 0;
};

// An engine for one layer, which computes as another does and shows what it computes. Where nobody needs the gradient at a
// convolution's input, the observer is shown it all the same.
std::shared_ptr<const Engine> observed(std::shared_ptr<const Engine> engine,
                                       std::shared_ptr<ProductObserver> observer);

}  // namespace lowtide
