#pragma once

#include <map>

#include "lowtide/data/text/entailment.h"
#include "lowtide/data/text/length_sampler.h"
#include "lowtide/data/text/pair_encoding.h"
#include "lowtide/models/bert.h"
#include "lowtide/tasks/task.h"

namespace lowtide {

// The pairs that the recipe names, and whether there are such; those of `pairs` must have its classes, where it has any.
EntailmentData open_pairs(const DataOptions& options, Split split);
bool has_pairs(const DataOptions& options, Split split);

// Whether the second of two sentences follows from the first, or what else a user's labels say of the two, by a BERT with a
// classifier.
class Entailment final : public Task {
 public:
  explicit Entailment(const Recipe& recipe, std::shared_ptr<Ranks> ranks = alone());

  std::string metric_name() const override { return "accuracy"; }
  std::string item_name() const override { return "pairs"; }
  std::string describe() const override { return description_; }
  torch::nn::Module& model() override { return *model_; }
  Execution& execution() override { return *execution_; }
  double steps_per_epoch() const override { return static_cast<double>(sampler_->batches_per_epoch()); }
  std::int64_t items_per_step() const override { return batch_; }
  void complete(Recipe& recipe) const override { recipe.data.classes = data_.classes; }
  std::vector<Ledger::Layer> layers() override { return layers_; }
  bool is_capturable() const override { return true; }
  void draw_batch() override;
  std::int64_t batch_shape() const override;
  StepResult compute_step() override;
  bool has(Split split) const override { return split != Split::kValid || !valid_.pairs.empty(); }
  Evaluation evaluate(Split split, Bits bits) override;
  Evaluation evaluate_sample(Split split, Bits bits, std::int64_t items) override;
  void re_estimate_statistics() override;
  torch::Tensor repeat_loss() override;
  Json state() const override { return {{"sampler", sampler_->state()}}; }
  void restore(const Json& state) override { sampler_->restore(state.at("sampler")); }

 private:
  // Pairs as the network reads them.
  struct Encoded {
    std::vector<EncodedPair> pairs;
    std::vector<std::int64_t> labels;

    std::vector<std::int32_t> lengths() const;
  };
  // Of one step.
  struct Batch {
    BertInput input;
    torch::Tensor labels;
  };

  std::int64_t read_data();  // how many classes there are
  void read_test(const EntailmentData& train);
  Encoded encode(const std::vector<SentencePair>& pairs);
  void make_model(const ModelOptions& options, const std::vector<std::string>& layer_bits,
                  std::int64_t labels);
  LengthSampler make_sampler() const { return {seed_, train_.lengths(), batch_}; }
  Batch host_batch(const Encoded& data, const std::vector<std::int64_t>& items) const;
  Batch to_device(const Batch& batch) const;
  torch::Tensor scores_of(const BertInput& input);

  DataOptions data_;
  std::int64_t batch_;
  std::uint64_t seed_;
  std::shared_ptr<Ranks> ranks_;
  Shards shards_;
  torch::Device device_;
  BertConfig config_;
  WordPiece pieces_;
  std::string description_;
  std::int64_t cut_ = 0;  // pairs longer than `length`
  Encoded train_, valid_, test_;
  std::unique_ptr<LengthSampler> sampler_;
  std::shared_ptr<Execution> execution_;
  std::shared_ptr<BertClassifier> model_;
  std::vector<Ledger::Layer> layers_;
  std::vector<std::int64_t> drawn_;       // the pairs of the step
  std::map<std::int64_t, Batch> static_;  // by shape: where undivided batches come to lie on the device
  Batch last_;                            // the last that was computed
};

}  // namespace lowtide
