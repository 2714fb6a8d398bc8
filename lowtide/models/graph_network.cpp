#include "lowtide/models/graph_network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/base/torch.h"
#include "lowtide/nn/quant_gat_conv.h"
#include "lowtide/nn/tensor_norm.h"

namespace lowtide {

// Not a product: its precision follows a layer's rules, but it counts no MACs.
class GraphNetwork::Between : public torch::nn::Module, public QuantLayer {
 public:
  explicit Between(const GraphNetworkOptions& options)
      : norm_(options.norm), quantize_norm_(options.quantize_norm) {
    dropout_ = register_module("dropout", Dropout(options.dropout));
  }

  at::Tensor forward(const at::Tensor& x) const {
    if (norm_ && !quantize_norm_) return relu_norm_dropout(x, dropout_);
    at::Tensor y = at::relu(x);
    if (quantize_norm_) {
      const auto call = c10::make_intrusive<LayerCall>();
      prepare(*call, true);
      y = quantize_both_ways(y, call);
    }
    return dropout_->forward(norm_ ? tensor_norm(y) : y);
  }

 private:
  bool norm_, quantize_norm_;
  Dropout dropout_ = nullptr;
};

GraphNetwork::GraphNetwork(const GraphNetworkOptions& options, const MakeLayer& make_layer)
    : options_(options) {
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const bool is_last = i + 1 == options.layers;
    const GraphConvOptions conv{i == 0 ? options.features : options.hidden,
                                is_last ? options.classes : options.hidden, options.quantized_aggregation};
    layers_.push_back(register_module(fmt::format("layer{}", i), make_layer(i, conv)));
    if (is_last) break;
    betweens_.push_back(register_module(fmt::format("norm{}", i), std::make_shared<Between>(options)));
  }
  // The last: layers are numbered in this order, and the noise of the others is that of runs without it.
  input_dropout_ = register_module("input_dropout", Dropout(options.input_dropout));
}

// Sparse features lose entries: their zeros stay zeros either way.
NodeInput GraphNetwork::with_dropout(const NodeInput& x) const {
  if (options_.input_dropout == 0 || !is_training()) return x;
  if (!x.sparse) return {input_dropout_->forward(x.dense), {}, {}};
  const at::Tensor values = input_dropout_->forward(x.sparse->rows.weights);
  NodeInput y{{}, with_values(*x.sparse, values), {}};
  if (x.sparse_own) {
    const std::int64_t own = x.sparse_own->rows.weights.numel();
    y.sparse_own = with_values(*x.sparse_own, values.narrow(0, 0, own));
  }
  return y;
}

at::Tensor GraphNetwork::forward(const NodeInput& input,
                                 const std::vector<std::shared_ptr<const Gather>>& gathers) {
  NodeInput x = with_dropout(input);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = {layers_[i]->forward(x, gathers.size() == 1 ? gathers[0] : gathers[i]), {}, {}};
    if (i < betweens_.size()) x.dense = betweens_[i]->forward(x.dense);
  }
  return x.dense;
}

std::vector<std::string> graph_network_names() { return {"gcn", "sage", "gat"}; }

std::shared_ptr<GraphNetwork> make_graph_network(const std::string& name,
                                                 const GraphNetworkOptions& options) {
  if (name == "gcn") {
    return std::make_shared<GraphNetwork>(options, [](std::int64_t, const GraphConvOptions& conv) {
      return std::make_shared<QuantGcnConvImpl>(conv);
    });
  }
  if (name == "sage") {
    return std::make_shared<GraphNetwork>(options, [](std::int64_t, const GraphConvOptions& conv) {
      return std::make_shared<QuantSageConvImpl>(conv);
    });
  }
  if (name == "gat") {
    if (options.hidden % options.heads != 0) {
      throw UserError(
          fmt::format("heads is {}; expected a divisor of hidden, {}", options.heads, options.hidden));
    }
    return std::make_shared<GraphNetwork>(options, [&](std::int64_t i, const GraphConvOptions& conv) {
      const std::int64_t heads = i + 1 == options.layers ? 1 : options.heads;
      return std::make_shared<QuantGatConvImpl>(GatConvOptions{conv, heads, options.dropout});
    });
  }
  const std::vector<std::string> names = graph_network_names();
  throw UserError(fmt::format("model is '{}'{}; expected one of {} for the nodes of a graph", name,
                              did_you_mean(name, {names.begin(), names.end()}), fmt::join(names, ", ")));
}

}  // namespace lowtide
