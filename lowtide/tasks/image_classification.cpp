#include "lowtide/tasks/image_classification.h"

#include <fmt/format.h>

#include <numeric>

#include "lowtide/base/error.h"
#include "lowtide/nn/batch_norm.h"
#include "lowtide/tasks/image_setup.h"
#include "lowtide/tasks/setup.h"
#include "lowtide/tasks/shared_evaluation.h"

namespace lowtide {
namespace {

ImageShape shape_of(const ImageDataset& data) {
  return {data.channels(), data.height(), data.width(), data.classes()};
}

}  // namespace

ImageClassification::ImageClassification(const Recipe& recipe, std::shared_ptr<Ranks> ranks)
    : training_(recipe.training),
      ranks_(std::move(ranks)),
      loader_threads_(recipe.running.loader_threads),
      skips_damaged_(recipe.data.skip_damaged),
      device_(device_of(recipe.running)),
      train_(open_images(recipe.data, Split::kTrain, damaged_train_)),
      test_(open_images(recipe.data, Split::kTest, damaged_test_)),
      split_(hold_out(train_->size(), recipe.data.validation)),
      execution_(make_execution(recipe.precision, recipe.running, recipe.training.seed)) {
  ImageShape shape = shape_of(*train_);
  const Augmentations augmentations = augmentations_of(recipe.data, shape);
  train_augment_ = augmentations.train;
  eval_augment_ = augmentations.eval;
  model_ = make_image_model(recipe.model.name, shape, recipe.precision.layer_bits, execution_);
  model_->to(device_);
  batches_ = training_batches(ranks_->shards_of(training_.shards));
}

std::string ImageClassification::describe() const {
  const std::string tested =
      damaged_test_.empty() ? "" : fmt::format("; {} damaged left out of the test set", damaged_test_.size());
  return fmt::format("{}; {} trained on, {} held out{}", train_->describe(), split_.train.size(),
                     split_.valid.size(), tested);
}

Json ImageClassification::skipped() const {
  if (!skips_damaged_) return {};
  return {{"train", damaged_train_.size()}, {"test", damaged_test_.size()}};
}

LoaderOptions ImageClassification::loader_options(const Shards& shards) const {
  // Small images in memory are made faster by one thread than any network here consumes them.
  const int threads = loader_threads_ > 0 ? loader_threads_ : train_->height() > 0 ? 1 : 0;
  return {.batch_size = training_.batch, .threads = threads, .shards = shards};
}

// The split's images on the device, sent there when they are first asked for; nothing where they stay with the host.
std::shared_ptr<const DevicePixels> ImageClassification::device_pixels(Split split,
                                                                       const AugmentSpec& augment) {
  const auto& data = split == Split::kTest ? test_ : train_;
  if (!DeviceImages::fits(*data, augment, device_)) return nullptr;
  auto& pixels = split == Split::kTest ? test_pixels_ : train_pixels_;
  if (!pixels) pixels = std::make_shared<DevicePixels>(data, device_);
  return pixels;
}

std::unique_ptr<StaticBatches> ImageClassification::training_batches(const Shards& shards) {
  if (const auto pixels = device_pixels(Split::kTrain, train_augment_)) {
    return std::make_unique<DeviceImages>(pixels, split_.train, training_.seed, train_augment_,
                                          loader_options(shards));
  }
  return std::make_unique<LoadedBatches>(
      std::make_unique<TrainLoader>(train_, split_.train, training_.seed, train_augment_,
                                    loader_options(shards)),
      device_);
}

std::function<std::optional<Batch>()> ImageClassification::eval_batches(
    Split split, const std::vector<std::int64_t>& indices) {
  if (const auto pixels = device_pixels(split, eval_augment_)) {
    const auto images = std::make_shared<DeviceEvalImages>(pixels, indices, eval_augment_, loader_options());
    return [images] { return images->next(); };
  }
  const auto& data = split == Split::kTest ? test_ : train_;
  const auto loader = std::make_shared<EvalLoader>(data, indices, eval_augment_, loader_options());
  return [this, loader] {
    std::optional<Batch> batch = loader->next();
    if (batch) batch = to_device(*batch);
    return batch;
  };
}

Batch ImageClassification::to_device(const Batch& batch) const {
  return {batch.images.to(device_, /*non_blocking=*/true), batch.labels.to(device_, /*non_blocking=*/true)};
}

torch::Tensor ImageClassification::forward_loss(const Batch& batch, torch::Tensor* logits) {
  const torch::Tensor output = stand_in_ ? stand_in_({batch.images})[0] : model_->forward(batch.images);
  if (logits != nullptr) *logits = output.detach();
  return torch::cross_entropy_loss(output, batch.labels);
}

std::vector<Ledger::Layer> ImageClassification::layers() {
  return layers_of(
      *model_, *execution_,
      {train_->channels(), train_augment_.out_height, train_augment_.out_width, train_->classes()});
}

void ImageClassification::draw_batch() { batches_->prepare(); }

StepResult ImageClassification::compute_step() {
  last_batch_ = batches_->batch();
  torch::Tensor logits;
  const torch::Tensor loss = forward_loss(last_batch_, &logits);
  loss.backward();
  const std::int64_t items = last_batch_.labels.size(0);
  return {loss.detach(),
          logits.argmax(1).eq(last_batch_.labels).sum(),
          items,
          items,
          {},
          static_cast<double>(items) / static_cast<double>(training_.batch)};
}

std::vector<std::int64_t> ImageClassification::items_of(Split split) const {
  if (split != Split::kTest) return split == Split::kValid ? split_.valid : split_.train;
  std::vector<std::int64_t> indices(static_cast<std::size_t>(test_->size()));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

Evaluation ImageClassification::evaluate(Split split, Bits bits) {
  return evaluate_items(split, items_of(split), bits);
}

Evaluation ImageClassification::evaluate_sample(Split split, Bits bits, std::int64_t items) {
  return evaluate_items(split, sample_of(items_of(split), items), bits);
}

Evaluation ImageClassification::evaluate_items(Split split, const std::vector<std::int64_t>& indices,
                                               Bits bits) {
  const Evaluating evaluating(*model_, *execution_, bits);
  const auto next_batch = eval_batches(split, items_of_rank(indices, training_.batch, *ranks_));
  EvaluationSums sums;
  while (const auto batch = next_batch()) {
    const std::int64_t items = batch->labels.size(0);
    const auto of_batch = evaluate_batch({batch->images, batch->labels}, [&](const auto& inputs) {
      torch::Tensor logits;
      const torch::Tensor loss = forward_loss({inputs[0], inputs[1]}, &logits) * items;
      return EvaluationGraphs::Tensors{loss, logits.argmax(1).eq(inputs[1]).sum()};
    });
    sums.add(of_batch[0], of_batch[1], items);
  }
  const EvaluationSums::Totals all = sums.over_all(*ranks_);
  const auto n = static_cast<double>(all.items);
  return {static_cast<double>(all.correct) / n, all.loss / n, all.items};
}

void ImageClassification::re_estimate_statistics() {
  const torch::NoGradGuard no_grad;
  const auto for_each_norm = [&](auto&& change) {
    for (const auto& module : model_->modules()) {
      if (auto* norm = module->as<BatchNormImpl>()) change(*norm);
    }
  };
  for_each_norm([](BatchNormImpl& norm) { norm.start_re_estimation(); });
  const auto batches = training_batches({});
  for (std::int64_t i = 0; i < kReEstimationBatches; ++i) {
    batches->prepare();
    model_->forward(batches->batch().images);
  }
  for_each_norm([](BatchNormImpl& norm) { norm.end_re_estimation(); });
}

torch::Tensor ImageClassification::repeat_loss() { return forward_loss(last_batch_); }

void ImageClassification::restore(const Json& state) { batches_->restore(state.at("sampler")); }

}  // namespace lowtide
