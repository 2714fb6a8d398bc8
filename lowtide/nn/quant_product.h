#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <utility>

#include "lowtide/nn/quant_layer.h"

namespace lowtide {

// A factor of a product: a stack of matrices, or the heads of an activation.
struct ProductOperand {
  ProductOperand(at::Tensor stack) : value(std::move(stack)) {}  // NOLINT: every stack is an operand
  // A stack whose rows' ranges are known.
  ProductOperand(const Activation& stack) : value(stack.value), range(stack.range) {}  // NOLINT: likewise
  // Of x, which is items × length × units of all heads: a matrix of length × units for each head of each item; or transposed,
  // units × length.
  static ProductOperand heads(const at::Tensor& x, std::int64_t heads, bool transposed);

  at::Tensor value;  // n × rows × columns; or items × heads × rows × columns, as a view of `source`
  Range range;
  at::Tensor source;
  bool transposed = false;
};

// The product a·b of two activations, as attention has them: stacks of matrices, n × rows × terms and n × terms × columns,
// an equal number for each of `items` items of the batch. Both operands are quantised with a range for each row of each
// matrix, that of the current tensor in evaluation as well; the gradient at the output with one for rows at the same place of
// their items. Computed as `layer` says.
at::Tensor quant_product(const QuantLayer& layer, const ProductOperand& a, const ProductOperand& b,
                         std::int64_t items);

class QuantProductImpl : public torch::nn::Module, public QuantLayer {
 public:
  at::Tensor forward(const ProductOperand& a, const ProductOperand& b, std::int64_t items) const {
    return quant_product(*this, a, b, items);
  }
};
TORCH_MODULE(QuantProduct);

}  // namespace lowtide
