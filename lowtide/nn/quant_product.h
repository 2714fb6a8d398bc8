#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lowtide/nn/quant_layer.h"

namespace lowtide {

// The product a·b of two activations, as attention has them: stacks of matrices, n × rows × terms and n × terms × columns,
// an equal number for each of `items` items of the batch. Both operands are quantised with a range for each row of each
// matrix, that of the current tensor in evaluation as well; the gradient at the output with one for rows at the same place of
// their items. Computed as `layer` says.
at::Tensor quant_product(const QuantLayer& layer, const at::Tensor& a, const at::Tensor& b,
                         std::int64_t items);

class QuantProductImpl : public torch::nn::Module, public QuantLayer {
 public:
  at::Tensor forward(const at::Tensor& a, const at::Tensor& b, std::int64_t items) const {
    return quant_product(*this, a, b, items);
  }
};
TORCH_MODULE(QuantProduct);

}  // namespace lowtide
