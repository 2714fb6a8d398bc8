#pragma once

#include <memory>

#include "lowtide/engine/engine.h"

namespace lowtide {

// Is shown what the three products of a convolution, a linear layer or a layer on a graph are made of, and what its gradients are.
class ProductObserver {
 public:
  virtual ~ProductObserver() = default;
  virtual void forward(const Quantized& input, const Quantized& weight) = 0;
  virtual void input_gradient(const at::Tensor& gradient) = 0;
  virtual void weight_gradient(const Quantized& error, const at::Tensor& gradient) = 0;

  // Whether it is shown the gradient at a convolution's input even where nobody else needs it, and it has to be computed.
  virtual bool needs_input_gradient() const { return true; }
};

// How the weights of a layer's products lie: as those of a linear layer, x·wᵀ, or the other way round, x·w.
enum class WeightLayout { kOutputsByInputs, kInputsByOutputs };

// An engine for one layer, which computes as another does and shows what it computes. A trunk's passes it makes one after the
// other.
std::shared_ptr<const Engine> observed(std::shared_ptr<const Engine> engine,
                                       std::shared_ptr<ProductObserver> observer,
                                       WeightLayout layout = WeightLayout::kOutputsByInputs);

}  // namespace lowtide
