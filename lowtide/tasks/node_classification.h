#pragma once

#include <memory>

#include "lowtide/data/sampler.h"
#include "lowtide/models/graph_network.h"
#include "lowtide/tasks/node_data.h"
#include "lowtide/tasks/task.h"

namespace lowtide {

// The classes of a graph's nodes. A step computes the whole graph and learns from all training nodes; or, with a fan-out, a
// batch of them from neighbours that are drawn. Evaluation computes the whole graph, on every rank.
class NodeClassification final : public Task {
 public:
  explicit NodeClassification(const Recipe& recipe, std::shared_ptr<Ranks> ranks = alone());
  // Of a graph that was made ready for the recipe.
  NodeClassification(const Recipe& recipe, Graph graph, std::shared_ptr<Ranks> ranks = alone());

  std::string metric_name() const override { return "accuracy"; }
  std::string item_name() const override { return "nodes"; }
  std::string describe() const override { return description_; }
  torch::nn::Module& model() override { return *model_; }
  Execution& execution() override { return *execution_; }
  double steps_per_epoch() const override;
  std::int64_t items_per_step() const override;
  std::vector<Ledger::Layer> layers() override { return layers_; }
  bool is_capturable() const override { return sampling_ == nullptr; }
  void draw_batch() override;
  StepResult compute_step() override;
  bool has(Split split) const override { return !nodes_of(split).empty(); }
  Evaluation evaluate(Split split, Bits bits) override;
  bool can_probe() const override { return sampling_ == nullptr; }  // it computes the whole graph
  void re_estimate_statistics() override {}  // there are none: ranges are those of the tensor at hand
  torch::Tensor repeat_loss() override;
  Json state() const override;
  void restore(const Json& state) override;

 private:
  // What one step computes: scores of some nodes, and which of them it learns from.
  struct Batch {
    NodeInput input;
    std::vector<std::shared_ptr<const Gather>> gathers;
    torch::Tensor learnt;  // rows of the scores; undefined: all
    torch::Tensor labels;
    std::int64_t items = 0, judged = 0;
  };
  struct Sampling {
    EpochSampler order;
    NeighbourSampler neighbours;
    std::int64_t draw = 0;              // which batch the step has
    std::vector<std::int32_t> nodes{};  // of it
  };

  const std::vector<std::int32_t>& nodes_of(Split split) const;
  torch::Tensor to_device(const std::vector<std::int32_t>& values) const;
  torch::Tensor labels_of(const std::vector<std::int32_t>& nodes) const;
  Batch whole_graph();
  Batch sampled(std::int64_t draw, const std::vector<std::int32_t>& nodes);
  torch::Tensor scores_of(const Batch& batch);
  const NodeInput& all_features();
  const std::shared_ptr<const Gather>& all_edges();

  std::int64_t batch_;
  Shards shards_;
  bool has_attention_;
  torch::Device device_;
  Graph graph_;
  std::string description_;
  std::unique_ptr<Sampling> sampling_;  // with a fan-out only
  std::shared_ptr<Execution> execution_;
  std::shared_ptr<GraphNetwork> model_;
  NodeInput all_features_;                   // of the whole graph, made when they are wanted
  std::shared_ptr<const Gather> all_edges_;  // likewise
  std::vector<Ledger::Layer> layers_;
  Batch last_;
};

}  // namespace lowtide
