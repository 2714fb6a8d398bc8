#include "lowtide/models/graph_network.h"
#include "lowtide/nn/gather.h"
#include "tests/golden/layer_check.h"
#include "tests/golden/step_check.h"

// What the file shows beyond its description: GraphSAGE too has a layer normalisation over the whole tensor after its ReLU;
// its weights have a range for each output, those of GCN for each input; the bias is added to a sum that is quantised by
// node; and an error is quantised as a whole three times a layer: at the layer's output, at the product's and, in Q-Agg, at
// the sum over neighbours.

namespace lowtide {
namespace {

constexpr Bits kBits{5, 8};
// A layer quantises more than once, so that a code on a border may fall either way within it. Sums of codes even lie half
// way between two codes, where the order of a float32 sum decides.
constexpr double kLayer = 0.5;

// layer1.neighbour_weight is layers.1.weight of GCN, conv2.fc_neigh.weight of GraphSAGE.
std::string recorded_layer(const std::string& model, std::int64_t index) {
  return model == "gcn" ? "layers." + std::to_string(index) : "conv" + std::to_string(index + 1);
}
std::string recorded_parameter(const std::string& ours) {
  if (ours == "self_weight") return "fc_self.weight";
  if (ours == "neighbour_weight") return "fc_neigh.weight";
  return ours;
}

using Recorded = std::tuple<std::string, std::string>;  // model, aggregation
class GoldenGraph : public testing::TestWithParam<Recorded> {
 protected:
  std::int64_t layers() const {
    std::int64_t count = 0;
    while (recorded_.has("init." + recorded_layer(name_, count) + ".bias")) ++count;
    return count;
  }

  GraphConvOptions options(std::int64_t layer) const {
    const std::string prefix = "init." + recorded_layer(name_, layer);
    const torch::Tensor weight =
        name_ == "gcn" ? recorded_[prefix + ".weight"] : recorded_[prefix + ".fc_self.weight"].t();
    return {weight.size(0), weight.size(1), quantized_};
  }

  NameOf layer_names(std::int64_t layer) const {
    return [prefix = recorded_layer(name_, layer) + "."](const std::string& ours) {
      return prefix + recorded_parameter(ours);
    };
  }
  std::string network_name(const std::string& ours) const {
    const std::size_t dot = ours.find('.');
    return layer_names(std::stoll(ours.substr(5, dot - 5)))(ours.substr(dot + 1));
  }

  std::shared_ptr<const Gather> gather() const {
    const std::vector<std::int64_t> source = file_.numbers("src"), target = file_.numbers("dst");
    std::vector<Edge> edges;
    for (std::size_t e = 0; e < source.size(); ++e) {
      // A row gathers: it is the target.
      edges.push_back({static_cast<std::int32_t>(target[e]), static_cast<std::int32_t>(source[e])});
    }
    return make_gather(csr_from_edges(recorded_["x"].size(0), edges), device_under_test(), {});
  }

  std::shared_ptr<GraphConv> make_layer(std::int64_t index, Bits bits) const {
    std::shared_ptr<GraphConv> layer;
    if (name_ == "gcn") {
      layer = std::make_shared<QuantGcnConvImpl>(options(index));
    } else {
      layer = std::make_shared<QuantSageConvImpl>(options(index));
    }
    layer->attach(execution_at(bits), "layer", 0);
    layer->to(device_under_test());
    load(*layer, recorded_.under("init."), layer_names(index));
    return layer;
  }

  const Recording file_{"gnn.pt"};
  const std::string name_ = std::get<0>(GetParam());
  const bool quantized_ = std::get<1>(GetParam()) == "qagg";
  const Recording recorded_ = file_.under(name_ + "." + std::get<1>(GetParam()) + ".");
};

TEST_P(GoldenGraph, EachLayerByItself) {
  for (std::int64_t i = 0; i < layers(); ++i) {
    const Recording io = recorded_.under("io." + recorded_layer(name_, i) + ".");
    SCOPED_TRACE(io.name());
    const auto run = [&](Bits bits) {
      const auto layer = make_layer(i, bits);
      const torch::Tensor x = io["x"].clone().requires_grad_();
      torch::Tensor y = layer->forward({x, {}, {}}, gather());
      if (name_ == "gcn" && i + 1 < layers()) y = y.relu();  // as recorded
      y.backward(io["grad_y"]);
      StepResult result{y.detach(), {}, gradients_of(*layer, layer_names(i)), {}};
      if (io.has("grad_x")) result.gradients["x"] = x.grad();
      return result;
    };
    const StepResult ours = run(kBits);
    TensorMap parameters = ours.gradients;
    parameters.erase("x");
    StepResult expected{io["y"], {}, recorded_like(parameters, recorded_.under("grad.")), {}};
    if (io.has("grad_x")) expected.gradients["x"] = io["grad_x"];
    expect_step(expected, ours, run(kFine), {.forward = kLayer, .gradient = kLayer});
  }
}

TEST_P(GoldenGraph, Step) {
  const auto run = [&](Bits bits) {
    const GraphConvOptions first = options(0), last = options(layers() - 1);
    const auto model = make_graph_network(name_, {.features = first.inputs,
                                                  .classes = last.outputs,
                                                  .hidden = first.outputs,
                                                  .layers = layers(),
                                                  .quantized_aggregation = quantized_});
    attach_layers(*model, execution_at(bits), LayerRules());
    model->to(device_under_test());
    const NameOf names = [&](const std::string& ours) { return network_name(ours); };
    load(*model, recorded_.under("init."), names);
    return step_from(model->forward({recorded_["x"], {}, {}}, {gather()}), recorded_["y"], *model, names);
  };
  const StepResult expected{recorded_["logits"], recorded_["loss"], recorded_.under("grad.").tensors(), {}};
  expect_step(expected, run(kBits), run(kFine), {.forward = 1, .gradient = 1});
}

INSTANTIATE_TEST_SUITE_P(All, GoldenGraph,
                         testing::Combine(testing::Values("gcn", "sage"), testing::Values("fpagg", "qagg")),
                         [](const auto& test) { return std::get<0>(test.param) + std::get<1>(test.param); });

// GraphSAGE's products, which the file has one by one: their operands are recorded, so sums are all that differs.
TEST(GoldenGraphSage, EachProductByItself) {
  for (const std::string aggregation : {"fpagg", "qagg"}) {
    const Recording recorded = Recording("gnn.pt").under("sage." + aggregation + ".");
    for (const std::string name : {"conv1.fc_self", "conv1.fc_neigh", "conv2.fc_self", "conv2.fc_neigh"}) {
      const Recording io = recorded.under("io." + name + ".");
      const torch::Tensor weight = recorded["init." + name + ".weight"].clone().requires_grad_();
      const auto call = c10::make_intrusive<LayerCall>();
      call->engine = engine_under_test();
      call->bits = kBits;
      call->needs_input_gradient = io.has("grad_x");
      const auto product = [&](const torch::Tensor& x) {
        return graph_product(x, encode_rows(x.detach(), kBits.forward), {}, weight, WeightRows::kOutputs,
                             call);
      };
      expect_layer(product, io, weight.size(1), weight.size(0));
      EXPECT_TRUE(
          close_to(weight.grad(), recorded["grad." + name + ".weight"], sum_tolerance(io["x"].size(0))))
          << io.name();
    }
  }
}

}  // namespace
}  // namespace lowtide
