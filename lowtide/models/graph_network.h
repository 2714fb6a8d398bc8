#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "lowtide/nn/dropout.h"
#include "lowtide/nn/quant_graph_conv.h"

namespace lowtide {

struct GraphNetworkOptions {
  std::int64_t features = 0;
  std::int64_t classes = 0;
  std::int64_t hidden = 0;  // units of each layer but the last, of all heads together
  std::int64_t layers = 2;
  std::int64_t heads = 1;    // gat: of each layer but the last, which has one
  double dropout = 0;        // before each layer but the first; gat: of attention too
  double input_dropout = 0;  // before the first
  bool norm = true;          // between layers
  bool quantized_aggregation = false;
  bool quantize_norm = false;
};

// Layers that gather from neighbours, with ReLU, a layer normalisation over the whole tensor (unless it is switched off)
// and dropout between them: from the features of nodes to the scores of their classes.
class GraphNetwork : public torch::nn::Module {
 public:
  using MakeLayer = std::function<std::shared_ptr<GraphConv>(std::int64_t index, const GraphConvOptions&)>;
  GraphNetwork(const GraphNetworkOptions& options, const MakeLayer& make_layer);

  // `gathers`: one for every layer, or one for all.
  at::Tensor forward(const NodeInput& x, const std::vector<std::shared_ptr<const Gather>>& gathers);

 private:
  NodeInput with_dropout(const NodeInput& x) const;

  // What stands between two layers.
  class Between;

  GraphNetworkOptions options_;
  Dropout input_dropout_ = nullptr;
  std::vector<std::shared_ptr<GraphConv>> layers_;
  std::vector<std::shared_ptr<Between>> betweens_;
};

std::vector<std::string> graph_network_names();

// UserError for a name that is none of them, and for heads that do not divide the hidden units.
std::shared_ptr<GraphNetwork> make_graph_network(const std::string& name, const GraphNetworkOptions& options);

}  // namespace lowtide
