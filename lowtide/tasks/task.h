#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/base/torch.h"
#include "lowtide/cost/ledger.h"
#include "lowtide/data/split.h"
#include "lowtide/nn/execution.h"
#include "lowtide/nn/named_tensors.h"
#include "lowtide/ranks/ranks.h"
#include "lowtide/recipe/recipe.h"
#include "lowtide/schedule/schedule.h"
#include "lowtide/tasks/evaluation_graphs.h"

namespace lowtide {

// That statistics are estimated anew from: enough to move a running range by all but 0.9^100 of its way, and for an error of a mean
// over batches of 128 images below a percent.
inline constexpr std::int64_t kReEstimationBatches = 100;

// What one step of training leaves, or one shard of it: tensors on the task's device, which nobody reads before they are needed.
struct StepResult {
  torch::Tensor loss = {};     // float32, mean over the items
  torch::Tensor correct = {};  // int64, how many were predicted right; undefined where none are counted
  std::int64_t items = 0;      // that were computed
  std::int64_t judged = 0;     // that could be right
  std::vector<std::int64_t> macs = {};  // by layer; empty: the items' number times those of one item
  double share = 1;                     // of the batch's items: the weight of a shard's gradients and loss
};

struct Evaluation {
  double metric = 0;  // what the task is judged by
  double loss = 0;
  std::int64_t items = 0;
  Json also = Json::object();  // further figures, by name
};

// What makes an experiment one: data, model, loss and metric. The training loop knows tasks only through
// this; a task never writes a file.
class Task {
 public:
  virtual ~Task() = default;

  virtual std::string metric_name() const = 0;  // "accuracy"
  virtual std::string item_name() const = 0;    // "images"
  virtual std::string describe() const = 0;     // one line about the data
  virtual torch::nn::Module& model() = 0;
  virtual Execution& execution() = 0;

  virtual double steps_per_epoch() const = 0;
  virtual std::int64_t items_per_step() const = 0;  // of most steps

  // Gives the recipe what it left to the data and the trained network depends on: the classes, and their order.
  virtual void complete(Recipe&) const {}

  // Damaged items left out by `skip-damaged`, by split; nothing where the recipe does not ask for that.
  virtual Json skipped() const { return {}; }

  // The layers that multiply, with their MACs for one item and the rule for their bits.
  virtual std::vector<Ledger::Layer> layers() = 0;

  // Draws a batch, computes the loss and its gradients at the precision in force; changes no weight. Where a batch has
  // shards: those of this rank one by one, as execution().shard says, each as a batch of its own. A shard without items
  // leaves no loss and no gradients.
  StepResult train_step() {
    draw_batch();
    return compute_step();
  }

  // The same in two parts: what the host does, and what the device does. Where is_capturable(), the second launches the same
  // work on the same memory every time that a batch has the same shape, and reads nothing on the host: a step can be captured
  // in a CUDA graph.
  virtual bool is_capturable() const { return false; }
  virtual void draw_batch() = 0;
  // A number that tells the shape of the batch drawn last from others.
  virtual std::int64_t batch_shape() const { return 0; }
  virtual StepResult compute_step() = 0;

  // The task's metric in training, from the mean loss and the share that was right; nothing where it takes more to know it.
  virtual std::optional<double> training_metric(double loss, double correct) const;

  // All ranks evaluate, together, and each has the result.
  virtual bool has(Split split) const = 0;
  virtual Evaluation evaluate(Split split, Bits bits) = 0;
  std::int64_t evaluation_captures() const { return evaluation_graphs_.captures(); }

  // Over about so many items of the split, the same each time; over all of them where they are fewer, or where
  // one cannot be taken from the rest. The result says how many there were.
  virtual Evaluation evaluate_sample(Split split, Bits bits, std::int64_t /*items*/) {
    return evaluate(split, bits);
  }

  // What a step's forward pass would make of about so many training items, the same each time: with the statistics and ranges
  // of their batch, as in training. Nothing that training goes on with changes.
  Evaluation probe(Bits bits, std::int64_t items);
  // Whether that costs no more than so many items do.
  virtual bool can_probe() const { return true; }

  // A network in place of the model, from its inputs to its outputs: an exported one, to be judged on the same items. With it
  // evaluate() computes in floats, whatever bits it is given.
  using Network = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;
  void set_stand_in(Network network) { stand_in_ = std::move(network); }

  // Estimates running statistics and ranges anew for the weights as they are, from training data.
  virtual void re_estimate_statistics() = 0;

  // The loss of the last batch once more, computed in the precision in force with what the network remembered then. What it
  // carries to the next step does not move.
  virtual torch::Tensor repeat_loss() = 0;
  // The first layer whose output on the last batch is not finite, or the last whose gradient is not.
  std::string find_not_finite();

  // All that a resume needs and is not a parameter or a buffer of the model: the position in the data, and tensors that one
  // step hands to the next. Those have a row for each item of the batch; a rank keeps those of its shards.
  virtual Json state() const = 0;
  virtual void restore(const Json& state) = 0;
  virtual NamedTensors carried() const { return {}; }

 protected:
  // A batch of an evaluation: see EvaluationGraphs. A network in place of the model is never captured.
  EvaluationGraphs::Tensors evaluate_batch(const EvaluationGraphs::Tensors& inputs,
                                           const EvaluationGraphs::Work& work) {
    return stand_in_ ? work(inputs) : evaluation_graphs_.run(execution(), inputs, work);
  }

  Network stand_in_;  // empty: the model itself

 private:
  EvaluationGraphs evaluation_graphs_;
};

std::unique_ptr<Task> make_task(const Recipe& recipe, std::shared_ptr<Ranks> ranks = alone());

// The same on drawn data, where the recipe's is not there and its size is published; `assumed` then says so. For time and
// cost, which depend on sizes alone.
std::unique_ptr<Task> make_task_or_drawn(const Recipe& recipe, std::string& assumed,
                                         std::shared_ptr<Ranks> ranks = alone());

// The layers of the recipe's model without its data, as far as the format of the data tells its shape;
// `assumed` says in words what was taken for granted, and is empty where the data was there.
struct TaskShape {
  std::vector<Ledger::Layer> layers;
  std::vector<LayerSize> sizes;  // of the same, as a schedule sees them
  double steps_per_epoch = 0;
  std::int64_t items_per_step = 0;
  std::string assumed;
};
TaskShape shape_of_task(const Recipe& recipe);

}  // namespace lowtide
