#pragma once

#include <memory>
#include <vector>

#include "lowtide/base/shards.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/execution.h"
#include "lowtide/ranks/ranks.h"
#include "lowtide/tasks/chosen_layers.h"

namespace lowtide {

// How sensitive the loss is to the rounding of each layer, by the ranges and gradients of a step of training as it is made:
//   s = [r_x²·‖∂L/∂x‖² + batch·Σ_o r_w,o²·‖∂L/∂w_o‖²] / (24·η·‖G‖²)
// summed over products where a layer has several, as layer_statistics has it, but at the bits in force, and where the
// step has no gradient at a layer's input without that term: nothing is multiplied for it. While it lives, a trunk
// makes its passes one after the other, and the layers' engines show what they multiply.
class LayerLook {
 public:
  // `layers`: the ledger's, in its order. `shards`: the part of the batch that this rank computes.
  LayerLook(Execution& execution, const std::vector<LayerChoice>& layers, const Shards& shards);
  ~LayerLook();
  LayerLook(const LayerLook&) = delete;
  LayerLook& operator=(const LayerLook&) = delete;

  // Between the step's gradients and its update: those of what each layer multiplies by, and of all parameters.
  void take_gradients(const std::vector<LayerWeights>& weights, const std::vector<torch::Tensor>& parameters);

  // Of every layer, NaN where it is none that is chosen for; all ranks ask, and each has the same. Reads the device. `batch`:
  // of how many items the loss is the mean.
  std::vector<double> sensitivities(Ranks& ranks, double rate, std::int64_t batch) const;

 private:
  class Inputs;
  using ShardInputs = std::vector<std::shared_ptr<Inputs>>;  // none: the layer is not chosen for

  Execution& execution_;
  const Shards shards_;
  const std::shared_ptr<const Engine> engine_;
  std::vector<ShardInputs> inputs_;
  torch::Tensor of_inputs_;   // shards × layers: r_x²·‖∂L/∂x‖², of the shard's own loss
  torch::Tensor of_weights_;  // layers
  torch::Tensor squared_gradient_;
};

}  // namespace lowtide
