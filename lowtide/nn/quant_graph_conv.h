#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "lowtide/nn/graph_functions.h"
#include "lowtide/nn/quant_layer.h"

namespace lowtide {

struct GraphConvOptions {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool quantized_aggregation = false;  // Q-Agg; else FP-Agg
};

// A layer from the features of nodes to those of the nodes that gather from them. Its product is quantised, the sum over
// neighbours where that is asked for (Q-Agg), and the addition of the bias: features by node, the error as a whole. The
// product comes before the sum where that makes features fewer, else after it.
class GraphConv : public torch::nn::Module, public QuantLayer {
 public:
  virtual at::Tensor forward(const NodeInput& x, const std::shared_ptr<const Gather>& gather) = 0;

 protected:
  // The call of one of this layer's operations, with noise of its own.
  c10::intrusive_ptr<LayerCall> new_call(bool needs_input_gradient = false) const;

  // The product of dense or sparse features, whose codes (of dense ones) were made for it.
  at::Tensor product(const NodeInput& x, const Quantized& codes, const at::Tensor& factor,
                     const at::Tensor& weight, WeightRows weight_rows) const;
  Quantized codes_of(const NodeInput& x) const;
};

// Kipf & Welling 2017: D^(-1/2) A D^(-1/2) X W + b.
class QuantGcnConvImpl : public GraphConv {
 public:
  explicit QuantGcnConvImpl(const GraphConvOptions& options);
  at::Tensor forward(const NodeInput& x, const std::shared_ptr<const Gather>& gather) override;

  const GraphConvOptions options;
  at::Tensor weight;  // inputs × outputs
  at::Tensor bias;
};
TORCH_MODULE(QuantGcnConv);

// Hamilton et al. 2017, the mean of neighbours: X W_self + D^(-1) A X W_neighbours + b.
class QuantSageConvImpl : public GraphConv {
 public:
  explicit QuantSageConvImpl(const GraphConvOptions& options);
  at::Tensor forward(const NodeInput& x, const std::shared_ptr<const Gather>& gather) override;

  const GraphConvOptions options;
  at::Tensor self_weight, neighbour_weight;  // outputs × inputs
  at::Tensor bias;

 private:
  at::Tensor neighbours(const NodeInput& x, const Quantized& codes,
                        const std::shared_ptr<const Gather>& gather) const;
};
TORCH_MODULE(QuantSageConv);

}  // namespace lowtide
