#pragma once

#include "lowtide/data/text/corpus.h"
#include "lowtide/data/text/text_batches.h"
#include "lowtide/models/language_model.h"
#include "lowtide/tasks/task.h"

namespace lowtide {

// The text that the recipe names.
Corpus open_corpus(const DataOptions& options);

// The next word of a text, or character, from those before it. Windows of the text follow each other; what the network remembers is
// carried from one to the next, gradients are not.
class LanguageModelling final : public Task {
 public:
  explicit LanguageModelling(const Recipe& recipe, std::shared_ptr<Ranks> ranks = alone());

  std::string metric_name() const override { return "perplexity"; }
  std::string item_name() const override { return corpus_.kind; }
  std::string describe() const override { return corpus_.describe(); }
  torch::nn::Module& model() override { return *model_; }
  Execution& execution() override { return *execution_; }
  double steps_per_epoch() const override { return static_cast<double>(batches_.windows_per_epoch()); }
  std::int64_t items_per_step() const override { return batch_ * length_; }
  std::vector<Ledger::Layer> layers() override { return layers_; }
  bool is_capturable() const override { return true; }
  void draw_batch() override;
  std::int64_t batch_shape() const override { return window_.words.size(0); }
  StepResult compute_step() override;
  std::optional<double> training_metric(double loss, double correct) const override;
  bool has(Split) const override { return true; }
  Evaluation evaluate(Split split, Bits bits) override;
  Evaluation evaluate_sample(Split split, Bits bits, std::int64_t items) override;
  void re_estimate_statistics() override;
  torch::Tensor repeat_loss() override;
  Json state() const override { return {{"text", batches_.state()}}; }
  void restore(const Json& state) override { batches_.restore(state.at("text")); }
  NamedTensors carried() const override { return carried_; }

 private:
  // A window's words on the device.
  struct Window {
    torch::Tensor words, targets;  // time × batch; time · batch
  };
  Window to_device(const TextWindow& window, std::int64_t batch) const;
  torch::Tensor scores_of(const torch::Tensor& words, NamedTensors& state);
  Window columns_of(const Window& window, std::int64_t begin, std::int64_t end) const;
  // What the execution's shard sees: columns of a window, rows of a state.
  Window shard_of(const Window& window) const;
  NamedTensors shard_of(const NamedTensors& state) const;
  torch::Tensor loss_of(const Window& window, NamedTensors& state);
  torch::Tensor evaluated_loss(const Window& window, NamedTensors& state);

  std::int64_t batch_, length_;
  std::shared_ptr<Ranks> ranks_;
  Shards shards_;  // of a window's columns
  torch::Device device_;
  Corpus corpus_;
  TextBatches batches_;
  std::shared_ptr<Execution> execution_;
  std::shared_ptr<LanguageModel> model_;
  std::vector<Ledger::Layer> layers_;
  Window static_;  // of full length, where windows come to lie
  Window window_;  // of the step: the first part of it
  NamedTensors carried_,
      before_;  // what the network remembers now, and before the window; a row for each column
};

}  // namespace lowtide
