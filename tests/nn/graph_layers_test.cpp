#include <torch/autograd.h>

#include "lowtide/engine/observed.h"
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

// Rows of numbers, as sparse features.
std::shared_ptr<const SparseFeatures> sparse_rows(const torch::Tensor& x) {
  Csr pattern;
  pattern.columns = x.size(1);
  std::vector<float> values;
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    for (std::int64_t j = 0; j < x.size(1); ++j) {
      if (x[i][j].item<float>() == 0) continue;
      pattern.indices.push_back(static_cast<std::int32_t>(j));
      values.push_back(x[i][j].item<float>());
    }
    pattern.offsets.push_back(pattern.entries());
  }
  return make_sparse_features(pattern, values, torch::kCPU);
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

// What a layer multiplied, and the gradients that came out.
struct SeenProducts final : ProductObserver {
  torch::Tensor x, dx, dw;

  void forward(const Quantized& input, const Quantized&) override { x = decode(input); }
  void input_gradient(const at::Tensor& gradient) override { dx = gradient.clone(); }
  void weight_gradient(const Quantized&, const at::Tensor& gradient) override { dw = gradient.clone(); }
};

// Weights of GCN and GAT lie inputs × outputs, so that their products are other ones than a linear layer's.
TEST_F(GraphLayers, AreSeenAsTheyMultiply) {
  QuantGcnConv gcn(GraphConvOptions{20, 7});
  QuantGatConv gat(GatConvOptions{{20, 6}, 2});
  const auto expect_seen = [&](auto& layer, const torch::Tensor& factor) {
    initialise(*layer, 3);
    const auto seen = std::make_shared<SeenProducts>();
    const auto execution = execution_at({});
    execution->engine = observed(execution->engine, seen, WeightLayout::kInputsByOutputs);
    for (const auto& module : layer->modules()) {
      if (auto* attached = dynamic_cast<AttachedLayer*>(module.get()))
        attached->attach(execution, "layer", 0);
    }
    const torch::Tensor x = normal({kNodes, 20}, 1).requires_grad_();
    const auto gather =
        make_gather(with_self_loops(undirected(some_edges())), torch::kCPU, {.entries = true});
    const auto found = gradients(layer->forward(NodeInput{x, {}, {}}, gather), {x, layer->weight});
    const torch::Tensor by = factor.defined() ? factor : torch::ones({kNodes});
    EXPECT_TRUE(close_to(seen->x, x * by.unsqueeze(1), kTolerance));
    EXPECT_TRUE(close_to(seen->dx * by.unsqueeze(1), found[0], kTolerance));
    EXPECT_TRUE(close_to(seen->dw, found[1], kTolerance));
  };
  const auto gather = make_gather(with_self_loops(undirected(some_edges())), torch::kCPU, {.entries = true});
  expect_seen(gat, {});
  // The columns' part of the norm is a factor of what is multiplied, and of its gradient.
  expect_seen(gcn, gather->column_norm);
}

TEST_F(GraphLayers, SparseFeaturesAreDenseOnes) {
  // A row of zeros, negative numbers, a row without zeros.
  torch::Tensor x = normal({kNodes, 40}, 4) * uniform({kNodes, 40}, 0, 1, 5).gt(0.8);
  x[3].zero_();
  x[4].copy_(uniform({40}, 0.5, 2, 6));
  const NodeInput sparse{{}, sparse_rows(x), {}};
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

// Kipf & Welling 2017, eq. 9: Â ReLU(Â X W0 + b0) W1 + b1.
TEST_F(GraphLayers, WithoutNormGcnIsThePublishedOne) {
  const Csr edges = with_self_loops(undirected(some_edges()));
  const auto model =
      make_graph_network("gcn", {.features = 20, .classes = 4, .hidden = 8, .layers = 2, .norm = false});
  initialise(*model, 1);
  attach_layers(*model, execution_at({}), LayerRules());
  const torch::Tensor x = normal({kNodes, 20}, 1), a = dense_matrix(edges);
  const torch::Tensor degree = a.sum(1), normalised = a / torch::sqrt(degree.unsqueeze(1) * degree);
  auto p = model->named_parameters();
  {
    const torch::NoGradGuard no_grad;
    p["layer0.bias"].copy_(normal({8}, 2));
    p["layer1.bias"].copy_(normal({4}, 3));
  }
  const torch::Tensor hidden =
      torch::relu(normalised.matmul(x).matmul(p["layer0.weight"]) + p["layer0.bias"]);
  const torch::Tensor expected = normalised.matmul(hidden).matmul(p["layer1.weight"]) + p["layer1.bias"];
  const torch::Tensor y = model->forward({x, {}, {}}, {make_gather(edges, torch::kCPU, {})});
  EXPECT_TRUE(close_to(y, expected, kTolerance));
  const auto ours = gradients(y, model->parameters()), theirs = gradients(expected, model->parameters());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(close_to(ours[i], theirs[i], kTolerance)) << i;
}

// A network that shows what its only layer is given: a graph of loops and the identity for its weight.
TEST_F(GraphLayers, InputDropoutIsOfTheFeatures) {
  constexpr std::int64_t kFeatures = 40;
  const torch::Tensor x = uniform({kNodes, kFeatures}, 0.5, 2, 1);
  const auto loops = make_gather(with_self_loops(csr_from_edges(kNodes, {})), torch::kCPU, {});
  for (const bool sparse : {false, true}) {
    const auto model = make_graph_network(
        "gcn", {.features = kFeatures, .classes = kFeatures - 1, .layers = 1, .input_dropout = 0.25});
    const auto execution = execution_at({});
    attach_layers(*model, execution, LayerRules());
    {
      const torch::NoGradGuard no_grad;
      model->named_parameters()["layer0.weight"].copy_(torch::eye(kFeatures, kFeatures - 1));
    }
    const torch::Tensor shown = x.narrow(1, 0, kFeatures - 1);
    const NodeInput input = sparse ? NodeInput{{}, sparse_rows(x), {}} : NodeInput{x, {}, {}};
    const torch::Tensor y = model->forward(input, {loops});
    const torch::Tensor dropped = y == 0;
    // 1,170 draws: five deviations are 5 · sqrt(0.25 · 0.75 / 1170) = 0.063.
    EXPECT_NEAR(dropped.to(torch::kFloat).mean().item<double>(), 0.25, 0.064) << sparse;
    EXPECT_TRUE(close_to(y, torch::where(dropped, torch::zeros_like(shown), shown / 0.75), 1e-6)) << sparse;
    execution->step = 1;
    EXPECT_FALSE(y.equal(model->forward(input, {loops}))) << "another step drops others";
    model->eval();
    EXPECT_TRUE(close_to(model->forward(input, {loops}), shown, 1e-6)) << sparse;
  }
}

TEST_F(GraphLayers, NodesOfABlockLoseTheSameFeaturesAsTheirNeighboursSee) {
  constexpr std::int64_t kOwn = 10, kFeatures = 6;
  const torch::Tensor x = uniform({kNodes, kFeatures}, 0.5, 2, 1);
  Csr itself;  // each of the first nodes gathers from itself alone
  itself.columns = kNodes;
  for (std::int32_t i = 0; i < kOwn; ++i) {
    itself.indices.push_back(i);
    itself.offsets.push_back(i + 1);
  }
  const auto model =
      make_graph_network("sage", {.features = kFeatures, .classes = 5, .layers = 1, .input_dropout = 0.5});
  attach_layers(*model, execution_at({}), LayerRules());
  const torch::NoGradGuard no_grad;
  model->named_parameters()["layer0.self_weight"].copy_(torch::eye(5, kFeatures));
  model->named_parameters()["layer0.neighbour_weight"].copy_(-torch::eye(5, kFeatures));
  const NodeInput input{{}, sparse_rows(x), sparse_rows(x.narrow(0, 0, kOwn))};
  const torch::Tensor y = model->forward(input, {make_gather(itself, torch::kCPU, {.gradients = false})});
  EXPECT_EQ(y.abs().max().item<float>(), 0);
}

TEST_F(GraphLayers, OtherValuesHaveOtherRanges) {
  torch::Tensor x = uniform({kNodes, 7}, -2, 2, 1) * uniform({kNodes, 7}, 0, 1, 2).gt(0.5);
  x[0].zero_();
  x[1].copy_(uniform({7}, 0.5, 2, 3));  // no zero
  x[2].copy_(uniform({7}, -2, -0.5, 4));
  const auto features = sparse_rows(x);
  const torch::Tensor values = features->rows.weights * 3;
  const auto changed = with_values(*features, values), expected = sparse_rows(x * 3);
  EXPECT_TRUE(same(changed->min, expected->min));
  EXPECT_TRUE(same(changed->range, expected->range));
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
