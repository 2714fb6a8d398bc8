#pragma once

#include <functional>
#include <optional>

#include "lowtide/data/device_images.h"
#include "lowtide/data/image_dataset.h"
#include "lowtide/data/loader.h"
#include "lowtide/data/static_batches.h"
#include "lowtide/models/image_model.h"
#include "lowtide/tasks/task.h"

namespace lowtide {

class ImageClassification final : public Task {
 public:
  explicit ImageClassification(const Recipe& recipe, std::shared_ptr<Ranks> ranks = alone());

  std::string metric_name() const override { return "accuracy"; }
  std::string item_name() const override { return "images"; }
  std::string describe() const override;
  torch::nn::Module& model() override { return *model_; }
  Execution& execution() override { return *execution_; }
  double steps_per_epoch() const override {
    return static_cast<double>(split_.train.size()) / static_cast<double>(training_.batch);
  }
  std::int64_t items_per_step() const override { return training_.batch; }
  Json skipped() const override;
  std::vector<Ledger::Layer> layers() override;
  bool is_capturable() const override { return true; }
  void draw_batch() override;
  StepResult compute_step() override;
  bool has(Split split) const override { return split != Split::kValid || !split_.valid.empty(); }
  Evaluation evaluate(Split split, Bits bits) override;
  Evaluation evaluate_sample(Split split, Bits bits, std::int64_t items) override;
  void re_estimate_statistics() override;
  torch::Tensor repeat_loss() override;
  Json state() const override { return {{"sampler", batches_->state()}}; }
  void restore(const Json& state) override;

 private:
  LoaderOptions loader_options(const Shards& shards = {}) const;
  std::vector<std::int64_t> items_of(Split split) const;
  Evaluation evaluate_items(Split split, const std::vector<std::int64_t>& indices, Bits bits);
  std::shared_ptr<const DevicePixels> device_pixels(Split split, const AugmentSpec& augment);
  std::unique_ptr<StaticBatches> training_batches(const Shards& shards);
  std::function<std::optional<Batch>()> eval_batches(Split split, const std::vector<std::int64_t>& indices);
  Batch to_device(const Batch& batch) const;
  torch::Tensor forward_loss(const Batch& batch, torch::Tensor* logits = nullptr);

  TrainingOptions training_;
  std::shared_ptr<Ranks> ranks_;
  int loader_threads_;
  bool skips_damaged_;
  torch::Device device_;
  std::vector<std::string> damaged_train_, damaged_test_;
  std::shared_ptr<const ImageDataset> train_, test_;
  HeldOut split_;
  AugmentSpec train_augment_, eval_augment_;
  std::shared_ptr<ImageModel> model_;
  std::shared_ptr<Execution> execution_;
  std::shared_ptr<const DevicePixels> train_pixels_, test_pixels_;
  std::unique_ptr<StaticBatches> batches_;
  Batch last_batch_;
};

}  // namespace lowtide
