#include "lowtide/models/graph_network.h"
#include "lowtide/nn/gather.h"
#include "tests/golden/golden_file.h"

// What the file shows beyond its description: GraphSAGE too has a layer normalisation over the whole tensor after its ReLU;
// its weights have a range for each output, those of GCN for each input; the bias is added to a sum that is quantised by
// node; and an error is quantised as a whole three times a layer: at the layer's output, at the product's and, in Q-Agg, at
// the sum over neighbours.

namespace lowtide {
namespace {

struct Renaming {
  std::string ours, recorded;
};

const std::vector<Renaming> kGcn{{"layer0.weight", "layers.0.weight"}, {"layer0.bias", "layers.0.bias"},
                                 {"layer1.weight", "layers.1.weight"}, {"layer1.bias", "layers.1.bias"},
                                 {"layer2.weight", "layers.2.weight"}, {"layer2.bias", "layers.2.bias"}};
const std::vector<Renaming> kSage{{"layer0.self_weight", "conv1.fc_self.weight"},
                                  {"layer0.neighbour_weight", "conv1.fc_neigh.weight"},
                                  {"layer0.bias", "conv1.bias"},
                                  {"layer1.self_weight", "conv2.fc_self.weight"},
                                  {"layer1.neighbour_weight", "conv2.fc_neigh.weight"},
                                  {"layer1.bias", "conv2.bias"}};
// Sums of up to 20 · 16 float32 products in another order, three layers deep.
constexpr double kTolerance = 2e-5;
// In Q-Agg of GCN one element of the last layer's error, a sum of codes, lies half way between two codes (127.5 of 255),
// and the order of a float32 sum decides where it goes. So gradients may differ by one code's share of the largest, here
// and in the layers before.
constexpr double kOneCode = 2.0 / 255;

Csr recorded_edges(const GoldenFile& file, std::int64_t nodes) {
  const auto source = file["src"].accessor<std::int64_t, 1>(),
             target = file["dst"].accessor<std::int64_t, 1>();
  std::vector<Edge> edges;
  for (std::int64_t e = 0; e < source.size(0); ++e) {
    // A row gathers: it is the target.
    edges.push_back({static_cast<std::int32_t>(target[e]), static_cast<std::int32_t>(source[e])});
  }
  return csr_from_edges(nodes, edges);
}

using Recorded = std::tuple<std::string, std::string>;  // model, aggregation
class GoldenGraph : public testing::TestWithParam<Recorded> {};

TEST_P(GoldenGraph, ScoresAndGradients) {
  const GoldenFile file{"gnn.pt"};
  const auto& [name, aggregation] = GetParam();
  const auto recorded = [&](const std::string& key) { return file[name + "." + aggregation + "." + key]; };
  const auto model = make_graph_network(name, {.features = 12,
                                               .classes = 5,
                                               .hidden = 16,
                                               .layers = name == "gcn" ? 3 : 2,
                                               .quantized_aggregation = aggregation == "qagg"});
  attach_layers(*model, execution_at({5, 8}), LayerRules());
  auto parameters = model->named_parameters();
  const std::vector<Renaming>& renamings = name == "gcn" ? kGcn : kSage;
  ASSERT_EQ(parameters.size(), renamings.size());
  {
    const torch::NoGradGuard no_grad;
    for (const auto& [ours, theirs] : renamings) parameters[ours].copy_(recorded("init." + theirs));
  }
  const torch::Tensor x = recorded("x");
  const auto gather = make_gather(recorded_edges(file, x.size(0)), torch::kCPU, {});
  const torch::Tensor scores = model->forward({x, {}, {}}, {gather});
  EXPECT_TRUE(close_to(scores, recorded("logits"), kTolerance));
  const torch::Tensor loss = torch::cross_entropy_loss(scores, recorded("y"));
  EXPECT_TRUE(close_to(loss, recorded("loss"), kTolerance));
  loss.backward();
  const double tolerance = name == "gcn" && aggregation == "qagg" ? kOneCode : kTolerance;
  for (const auto& [ours, theirs] : renamings) {
    EXPECT_TRUE(close_to(parameters[ours].grad(), recorded("grad." + theirs), tolerance)) << ours;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenGraph,
                         testing::Combine(testing::Values("gcn", "sage"), testing::Values("fpagg", "qagg")),
                         [](const auto& test) { return std::get<0>(test.param) + std::get<1>(test.param); });

}  // namespace
}  // namespace lowtide
