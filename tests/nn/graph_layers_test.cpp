#include "lowtide/models/graph_network.h"
#include "lowtide/models/initialise.h"
#include "lowtide/nn/quant_gat_conv.h"
#include "lowtide/nn/tensor_norm.h"
#include "tests/testing.h"

// Layers on graphs in full precision against the same formulas on dense matrices, whose gradients autograd finds.

namespace lowtide {
namespace {

constexpr std::int64_t kNodes = 30;
// Sums of up to 30 · 20 float32 products in another order.
constexpr double kTolerance = 2e-5;

Csr some_edges() {
  std::vector<Edge> edges;
  for (std::int32_t i = 0; i < kNodes; ++i) {
    for (std::int32_t k = 0; k < i % 5; ++k)
      edges.push_back({i, (i * 3 + k * 11 + 1) % static_cast<int>(kNodes)});
  }
  return csr_from_edges(kNodes, edges);
}

// How often row i names column j.
torch::Tensor dense_matrix(const Csr& edges) {
  torch::Tensor matrix = torch::zeros({edges.rows(), edges.columns});
  for (std::int64_t i = 0; i < edges.rows(); ++i) {
    for (const std::int32_t j : edges.row(i)) matrix[i][j] += 1;
  }
  return matrix;
}

class GraphLayers : public testing::Test {
 protected:
  template <typename Layer>
  void attach(Layer& layer, Bits bits = {}) {
    initialise(*layer, 3);
    layer->attach(execution_at(bits), "layer", 0);
    for (const auto& child : layer->modules(/*include_self=*/false)) {
      if (auto* attached = dynamic_cast<AttachedLayer*>(child.get()))
        attached->attach(execution_at(bits), "child", 1);
    }
  }

  // The gradients of x and of the layer's parameters for an error that depends on the element.
  std::vector<torch::Tensor> gradients(const torch::Tensor& y, const std::vector<torch::Tensor>& of) {
    return torch::autograd::grad({(y * normal(y.sizes(), 9)).sum()}, of);
  }

  template <typename Layer, typename Formula>
  void expect_formula(Layer& layer, std::int64_t inputs, const Csr& edges, const Formula& formula) {
    const torch::Tensor x = normal({kNodes, inputs}, 1).requires_grad_();
    std::vector<torch::Tensor> of = layer->parameters();
    of.push_back(x);
    const torch::Tensor y =
        layer->forward(NodeInput{x, {}, {}}, make_gather(edges, torch::kCPU, {.entries = true}));
    const torch::Tensor expected = formula(x, dense_matrix(edges));
    EXPECT_TRUE(close_to(y, expected, kTolerance));
    const auto ours = gradients(y, of), theirs = gradients(expected, of);
    for (std::size_t i = 0; i < of.size(); ++i) EXPECT_TRUE(close_to(ours[i], theirs[i], kTolerance)) << i;
  }
};

TEST_F(GraphLayers, GcnIsItsFormula) {
  for (const auto& [inputs, outputs] : {std::pair{7, 20}, {20, 7}, {8, 8}, {1, 1}}) {
    QuantGcnConv layer(GraphConvOptions{inputs, outputs});
    attach(layer);
    expect_formula(layer, inputs, some_edges(), [&](const torch::Tensor& x, const torch::Tensor& a) {
      const torch::Tensor left = a.sum(1, true).clamp_min(1).rsqrt(),
                          right = a.sum(0, true).clamp_min(1).rsqrt();
      return torch::matmul(left * a * right, x).matmul(layer->weight) + layer->bias;
    });
  }
}

TEST_F(GraphLayers, SageIsItsFormula) {
  for (const auto& [inputs, outputs] : {std::pair{7, 20}, {20, 7}}) {
    QuantSageConv layer(GraphConvOptions{inputs, outputs});
    attach(layer);
    expect_formula(layer, inputs, some_edges(), [&](const torch::Tensor& x, const torch::Tensor& a) {
      const torch::Tensor mean = torch::matmul(a / a.sum(1, true).clamp_min(1), x);
      return x.matmul(layer->self_weight.t()) + mean.matmul(layer->neighbour_weight.t()) + layer->bias;
    });
  }
}

TEST_F(GraphLayers, GatIsItsFormula) {
  const Csr edges = with_self_loops(undirected(some_edges()));
  for (const std::int64_t heads : {1, 3}) {
    QuantGatConv layer(GatConvOptions{{7, 12}, heads});
    attach(layer);
    expect_formula(layer, 7, edges, [&](const torch::Tensor& x, const torch::Tensor& a) {
      const torch::Tensor z = x.matmul(layer->weight).view({kNodes, heads, -1});
      const torch::Tensor row = (z * layer->row_attention).sum(-1),
                          column = (z * layer->column_attention).sum(-1);
      const torch::Tensor score = torch::leaky_relu(row.unsqueeze(1) + column.unsqueeze(0), 0.2);
      const torch::Tensor masked = score.masked_fill(a.unsqueeze(-1) == 0, -1e30);
      return torch::einsum("ijh,jhd->ihd", {torch::softmax(masked, 1), z}).reshape({kNodes, -1}) +
             layer->bias;
    });
  }
}

TEST_F(GraphLayers, SparseFeaturesAreDenseOnes) {
  // A row of zeros, negative numbers, a row without zeros.
  torch::Tensor x = normal({kNodes, 40}, 4) * uniform({kNodes, 40}, 0, 1, 5).gt(0.8);
  x[3].zero_();
  x[4].copy_(uniform({40}, 0.5, 2, 6));
  Csr pattern;
  pattern.columns = 40;
  std::vector<float> values;
  for (std::int64_t i = 0; i < kNodes; ++i) {
    for (std::int32_t j = 0; j < 40; ++j) {
      if (x[i][j].item<float>() == 0) continue;
      pattern.indices.push_back(j);
      values.push_back(x[i][j].item<float>());
    }
    pattern.offsets.push_back(pattern.entries());
  }
  const NodeInput sparse{{}, make_sparse_features(pattern, values, torch::kCPU), {}};
  const auto gather = make_gather(some_edges(), torch::kCPU, {});
  for (const Bits bits : {Bits{0, 0}, Bits{4, 8}, Bits{8, 8}}) {
    for (const std::int64_t outputs : {6, 50}) {
      QuantGcnConv gcn(GraphConvOptions{40, outputs, true});
      QuantSageConv sage(GraphConvOptions{40, outputs, true});
      attach(gcn, bits);
      attach(sage, bits);
      for (const std::shared_ptr<GraphConv>& layer :
           std::vector<std::shared_ptr<GraphConv>>{gcn.ptr(), sage.ptr()}) {
        const torch::Tensor y = layer->forward(sparse, gather),
                            expected = layer->forward({x, {}, {}}, gather);
        EXPECT_TRUE(close_to(y, expected, kTolerance));
        const auto ours = gradients(y, layer->parameters()),
                   theirs = gradients(expected, layer->parameters());
        for (std::size_t i = 0; i < ours.size(); ++i)
          EXPECT_TRUE(close_to(ours[i], theirs[i], kTolerance)) << i;
      }
    }
  }
}

TEST_F(GraphLayers, TensorNormIsALayerNormOverAllElements) {
  for (const std::int64_t rows : {1, 30, 5000}) {
    const torch::Tensor x = (normal({rows, 7}, 1) * 3 + 100).requires_grad_();
    const torch::Tensor expected = torch::layer_norm(x.to(torch::kDouble), {rows, 7});
    const torch::Tensor y = tensor_norm(x);
    // The mean of numbers near 100 is right to some 1e-5 of the deviation of 3.
    EXPECT_TRUE(close_to(y, expected, 1e-5));
    EXPECT_TRUE(close_to(gradients(y, {x})[0], gradients(expected, {x})[0], 1e-4));
  }
  const torch::Tensor constant = torch::full({4, 5}, 1e6);
  EXPECT_TRUE(torch::isfinite(tensor_norm(constant)).all().item<bool>());
  expect_independent_of_threads([] { return tensor_norm(normal({3000, 100}, 2)); });
}

TEST_F(GraphLayers, EveryNetworkAtEveryPrecisionHasFiniteGradients) {
  const torch::Tensor x = normal({kNodes, 9}, 1);
  const auto gather = make_gather(with_self_loops(some_edges()), torch::kCPU, {.entries = true});
  for (const std::string& name : graph_network_names()) {
    for (const bool quantized : {false, true}) {
      for (const Bits bits : {Bits{0, 0}, Bits{3, 8}, Bits{8, 8}, Bits{12, 16}}) {
        const auto model = make_graph_network(name, {.features = 9,
                                                     .classes = 4,
                                                     .hidden = 8,
                                                     .layers = 3,
                                                     .heads = 2,
                                                     .dropout = 0.3,
                                                     .quantized_aggregation = quantized,
                                                     .quantize_norm = quantized});
        initialise(*model, 1);
        attach_layers(*model, execution_at(bits, /*stochastic=*/true), LayerRules());
        const torch::Tensor y = model->forward({x, {}, {}}, {gather});
        EXPECT_EQ(y.sizes(), (torch::IntArrayRef{kNodes, 4}));
        torch::cross_entropy_loss(y, torch::zeros({kNodes}, torch::kInt64)).backward();
        for (const auto& item : model->named_parameters()) {
          EXPECT_TRUE(torch::isfinite(item.value().grad()).all().item<bool>()) << name << " " << item.key();
          EXPECT_GT(item.value().grad().abs().max().item<float>(), 0) << name << " " << item.key();
        }
      }
    }
  }
}

}  // namespace
}  // namespace lowtide
