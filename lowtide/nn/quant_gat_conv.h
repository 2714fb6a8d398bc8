#pragma once

#include "lowtide/nn/dropout.h"
#include "lowtide/nn/quant_graph_conv.h"

namespace lowtide {

struct GatConvOptions {
  GraphConvOptions conv;   // outputs of all heads together
  std::int64_t heads = 1;  // which divide the outputs
  double dropout = 0;      // of attention
};

// Veličković et al. 2018, "Graph attention networks": neighbours are weighted by a softmax over
// LeakyReLU(a_row · W x_i + a_column · W x_j), for each head on its own. Product and sum are quantised as in GCN, what makes
// the attention is fp32.
class QuantGatConvImpl : public GraphConv {
 public:
  explicit QuantGatConvImpl(const GatConvOptions& options);
  at::Tensor forward(const NodeInput& x, const std::shared_ptr<const Gather>& gather) override;

  const GatConvOptions options;
  at::Tensor weight;                           // inputs × outputs
  at::Tensor row_attention, column_attention;  // heads × outputs of one
  at::Tensor bias;

 private:
  Dropout dropout_ = nullptr;
};
TORCH_MODULE(QuantGatConv);

}  // namespace lowtide
