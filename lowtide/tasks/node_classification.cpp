#include "lowtide/tasks/node_classification.h"

#include "lowtide/models/initialise.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {
namespace {

GraphNetworkOptions options_of(const ModelOptions& model, const Graph& graph) {
  return {.features = graph.features.columns,
          .classes = graph.classes,
          .hidden = model.hidden,
          .layers = model.layers,
          .heads = model.heads,
          .dropout = model.dropout,
          .input_dropout = model.input_dropout,
          .norm = model.norm != "none",
          .quantized_aggregation = model.aggregation == "quantized",
          .quantize_norm = model.quantize_norm};
}

}  // namespace

NodeClassification::NodeClassification(const Recipe& recipe, std::shared_ptr<Ranks> ranks)
    : NodeClassification(recipe, open_nodes(recipe), std::move(ranks)) {}

NodeClassification::NodeClassification(const Recipe& recipe, Graph graph, std::shared_ptr<Ranks> ranks)
    : batch_(recipe.training.batch),
      shards_(ranks->shards_of(recipe.training.shards)),
      has_attention_(recipe.model.name == "gat"),
      device_(device_of(recipe.running)),
      graph_(std::move(graph)),
      description_(graph_.describe()),
      execution_(make_execution(recipe.precision, recipe.running, recipe.training.seed)),
      model_(make_graph_network(recipe.model.name, options_of(recipe.model, graph_))) {
  initialise(*model_, recipe.training.seed);
  attach_layers(*model_, execution_, {}, recipe.precision.layer_bits, recipe.model.name);
  model_->to(device_);
  if (!recipe.data.fan_out.empty()) {
    const auto train_nodes = static_cast<std::int64_t>(graph_.split.train.size());
    sampling_ = std::make_unique<Sampling>(
        Sampling{EpochSampler(recipe.training.seed, train_nodes),
                 NeighbourSampler(graph_.edges, recipe.data.fan_out, recipe.training.seed)});
  } else {
    last_ = whole_graph();
  }
  const std::vector<std::int32_t>& train = graph_.split.train;
  const Batch batch = sampling_ ? sampled(0, {train.begin(), train.begin() + recipe.training.batch}) : last_;
  layers_ = measure_layers(*model_, *execution_, batch.items, [&] { scores_of(batch); });
}

double NodeClassification::steps_per_epoch() const {
  return sampling_ ? static_cast<double>(graph_.split.train.size()) / static_cast<double>(batch_) : 1;
}

std::int64_t NodeClassification::items_per_step() const { return sampling_ ? batch_ : graph_.nodes; }

const std::vector<std::int32_t>& NodeClassification::nodes_of(Split split) const {
  return split == Split::kTest    ? graph_.split.test
         : split == Split::kValid ? graph_.split.valid
                                  : graph_.split.train;
}

torch::Tensor NodeClassification::to_device(const std::vector<std::int32_t>& values) const {
  return torch::tensor(values, torch::kInt32).to(torch::kInt64).to(device_);
}

torch::Tensor NodeClassification::labels_of(const std::vector<std::int32_t>& nodes) const {
  std::vector<std::int32_t> labels;
  labels.reserve(nodes.size());
  for (const std::int32_t node : nodes) labels.push_back(graph_.labels[static_cast<std::size_t>(node)]);
  return to_device(labels);
}

const NodeInput& NodeClassification::all_features() {
  if (!all_features_.sparse && !all_features_.dense.defined()) {
    all_features_ = whole_input(graph_.features, device_);
  }
  return all_features_;
}

const std::shared_ptr<const Gather>& NodeClassification::all_edges() {
  if (!all_edges_) {
    all_edges_ = make_gather(graph_.edges, device_, {.gradients = !sampling_, .entries = has_attention_});
  }
  return all_edges_;
}

NodeClassification::Batch NodeClassification::whole_graph() {
  const std::vector<std::int32_t>& train = graph_.split.train;
  return {all_features(),   {all_edges()}, to_device(train),
          labels_of(train), graph_.nodes,  static_cast<std::int64_t>(train.size())};
}

NodeClassification::Batch NodeClassification::sampled(std::int64_t draw,
                                                      const std::vector<std::int32_t>& nodes) {
  const std::vector<Block> blocks = sampling_->neighbours.sample(draw, nodes);
  const auto count = static_cast<std::int64_t>(nodes.size());
  Batch batch{block_input(graph_.features, blocks.front(), device_), {}, {}, labels_of(nodes), count, count};
  for (const Block& block : blocks) batch.gathers.push_back(make_gather(block.edges, device_, {}));
  return batch;
}

void NodeClassification::draw_batch() {
  if (!sampling_) return;
  std::vector<std::int32_t>& nodes = sampling_->nodes;
  if (execution_->shard == shards_.first) {
    sampling_->draw = sampling_->order.position() / batch_;
    nodes.clear();
    for (const std::int64_t i : sampling_->order.next_batch(batch_)) {
      nodes.push_back(graph_.split.train[static_cast<std::size_t>(i)]);
    }
  }
  last_ = sampled(sampling_->draw, {nodes.begin() + shards_.begin_of(execution_->shard, batch_),
                                    nodes.begin() + shards_.begin_of(execution_->shard + 1, batch_)});
}

torch::Tensor NodeClassification::scores_of(const Batch& batch) {
  const torch::Tensor scores = model_->forward(batch.input, batch.gathers);
  return batch.learnt.defined() ? scores.index_select(0, batch.learnt) : scores;
}

StepResult NodeClassification::compute_step() {
  const MacCounter counter(*execution_, layers_);
  const torch::Tensor scores = scores_of(last_);
  const torch::Tensor loss = torch::cross_entropy_loss(scores, last_.labels);
  loss.backward();
  const torch::Tensor correct = scores.detach().argmax(1).eq(last_.labels).sum();
  const double share = sampling_ ? static_cast<double>(last_.items) / static_cast<double>(batch_) : 1;
  return {loss.detach(), correct, last_.items, last_.judged, counter.macs(), share};
}

Evaluation NodeClassification::evaluate(Split split, Bits bits) {
  const Evaluating evaluating(*model_, *execution_, bits);
  const std::vector<std::int32_t>& nodes = nodes_of(split);
  const torch::Tensor labels = labels_of(nodes);
  const torch::Tensor scores =
      model_->forward(all_features(), {all_edges()}).index_select(0, to_device(nodes));
  const auto count = static_cast<std::int64_t>(nodes.size());
  const auto correct = scores.argmax(1).eq(labels).sum().item<std::int64_t>();
  return {static_cast<double>(correct) / static_cast<double>(count),
          torch::cross_entropy_loss(scores, labels).item<double>(), count};
}

torch::Tensor NodeClassification::repeat_loss() {
  return torch::cross_entropy_loss(scores_of(last_), last_.labels);
}

Json NodeClassification::state() const {
  return {{"nodes", sampling_ ? sampling_->order.state() : Json::object()}};
}

void NodeClassification::restore(const Json& state) {
  if (sampling_) sampling_->order.restore(state.at("nodes"));
}

}  // namespace lowtide
