#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/data/detection/detection_loader.h"
#include "lowtide/models/retinanet.h"
#include "lowtide/tasks/task.h"

namespace lowtide {

// Objects in images, annotated as Pascal VOC's are, found by RetinaNet; judged by the mean average precision at an
// overlap of 0.5.
class ObjectDetection final : public Task {
 public:
  explicit ObjectDetection(const Recipe& recipe, std::shared_ptr<Ranks> ranks = alone());

  std::string metric_name() const override { return "mAP"; }
  std::string item_name() const override { return "images"; }
  std::string describe() const override;
  torch::nn::Module& model() override { return *model_; }
  Execution& execution() override { return *execution_; }
  double steps_per_epoch() const override;
  std::int64_t items_per_step() const override { return batch_; }
  void complete(Recipe& recipe) const override { recipe.data.classes = classes_; }
  Json skipped() const override;
  std::vector<Ledger::Layer> layers() override { return layers_; }
  void draw_batch() override;
  StepResult compute_step() override;
  std::optional<double> training_metric(double, double) const override { return std::nullopt; }
  bool has(Split split) const override { return split != Split::kValid || !split_.valid.empty(); }
  Evaluation evaluate(Split split, Bits bits) override;
  Evaluation evaluate_sample(Split split, Bits bits, std::int64_t items) override;
  void re_estimate_statistics() override;
  torch::Tensor repeat_loss() override;
  Json state() const override { return {{"sampler", stream_->state()}}; }
  void restore(const Json& state) override { stream_->restore(state.at("sampler")); }

 private:
  using Stream = TrainStream<DetectionBatch>;

  std::unique_ptr<Stream> training_stream(const Shards& shards) const;
  LoaderOptions loader_options(const Shards& shards = {}) const;
  DetectionBatch to_device(DetectionBatch batch) const;
  const torch::Tensor& anchors_for(const torch::Tensor& images);
  DetectorOutput output_of(const torch::Tensor& images);
  torch::Tensor forward_loss(const DetectionBatch& batch, DetectorOutput* output = nullptr);
  // Statistics of the normalisations (the frozen ones too, or not) and ranges, from so many batches.
  void estimate(std::int64_t batches, bool frozen);

  std::int64_t batch_;
  std::uint64_t seed_;
  int loader_threads_;
  bool skips_damaged_;
  bool freezes_random_norms_;         // statistics that no weights have, which the recipe freezes
  std::vector<std::string> classes_;  // as the recipe of the run has them
  std::shared_ptr<Ranks> ranks_;
  Shards shards_;
  torch::Device device_;
  DetectionView train_view_, eval_view_;
  std::shared_ptr<const VocDataset> train_, test_;
  HeldOut split_;
  std::shared_ptr<Execution> execution_;
  std::shared_ptr<RetinaNet> model_;
  std::vector<Ledger::Layer> layers_;
  std::unique_ptr<Stream> stream_;
  std::map<std::pair<std::int64_t, std::int64_t>, torch::Tensor> anchors_;  // by height and width
  DetectionBatch last_batch_;
};

}  // namespace lowtide
