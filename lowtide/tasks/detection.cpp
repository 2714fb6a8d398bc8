#include "lowtide/tasks/detection.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>

#include "lowtide/data/detection/average_precision.h"
#include "lowtide/models/anchors.h"
#include "lowtide/nn/batch_norm.h"
#include "lowtide/tasks/detection_loss.h"
#include "lowtide/tasks/detection_setup.h"
#include "lowtide/tasks/find_objects.h"
#include "lowtide/tasks/setup.h"
#include "lowtide/tasks/shared_evaluation.h"

namespace lowtide {
namespace {

// What the statistics of a random network are taken from, before they are frozen: an image has thousands of positions.
constexpr std::int64_t kFirstImages = 32;

std::int64_t batches_of(std::int64_t images, std::int64_t batch) { return (images + batch - 1) / batch; }

// In pixels of the batch, as the detections are.
void add_objects(const VocAnnotation& annotation, const ImageFit& fit, std::int64_t image,
                 std::vector<GroundTruth>& objects) {
  for (const VocObject& object : annotation.objects)
    objects.push_back({image, object.label, scaled(object.box, fit.scale), object.difficult});
}

// In a batch that is evaluated.
struct Found {
  double loss = 0;
  std::vector<Detection> detections;
  std::vector<GroundTruth> objects;
};

// Between processes of one program: as they lie in memory.
std::string to_bytes(const Found& found) {
  std::string bytes;
  const auto append = [&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  const std::size_t count = found.detections.size();
  append(&found.loss, sizeof(found.loss));
  append(&count, sizeof(count));
  append(found.detections.data(), count * sizeof(Detection));
  append(found.objects.data(), found.objects.size() * sizeof(GroundTruth));
  return bytes;
}

void add_bytes(const std::string& bytes, Found& all) {
  static_assert(std::is_trivially_copyable_v<Detection> && std::is_trivially_copyable_v<GroundTruth>);
  double loss = 0;
  std::size_t count = 0;
  const char* from = bytes.data();
  const auto read = [&](void* to, std::size_t size) {
    std::memcpy(to, from, size);
    from += size;
  };
  read(&loss, sizeof(loss));
  read(&count, sizeof(count));
  all.loss += loss;
  for (Detection detection; count > 0; --count) {
    read(&detection, sizeof(detection));
    all.detections.push_back(detection);
  }
  for (GroundTruth object; from < bytes.data() + bytes.size();) {
    read(&object, sizeof(object));
    all.objects.push_back(object);
  }
}

}  // namespace

ObjectDetection::ObjectDetection(const Recipe& recipe, std::shared_ptr<Ranks> ranks)
    : batch_(recipe.training.batch),
      seed_(recipe.training.seed),
      loader_threads_(recipe.running.loader_threads),
      skips_damaged_(recipe.data.skip_damaged),
      freezes_random_norms_(recipe.model.weights.empty() && recipe.model.freeze_norm),
      ranks_(std::move(ranks)),
      shards_(ranks_->shards_of(recipe.training.shards)),
      device_(device_of(recipe.running)),
      train_view_(view_of(recipe.data, /*training=*/true)),
      eval_view_(view_of(recipe.data, /*training=*/false)),
      train_(std::make_shared<VocDataset>(recipe.data.dir, recipe.data.train_set,
                                          VocOptions{recipe.data.classes, recipe.data.skip_damaged})),
      test_(std::make_shared<VocDataset>(recipe.data.dir, recipe.data.test_set,
                                         VocOptions{train_->classes(), recipe.data.skip_damaged})),
      split_(hold_out(train_->size(), recipe.data.validation)),
      execution_(make_execution(recipe.precision, recipe.running, recipe.training.seed)) {
  classes_ = classes_to_keep(train_->classes(), recipe.data);
  model_ = make_detector(recipe.model, train_->classes().size(), recipe.precision.layer_bits, execution_);
  model_->to(device_);
  layers_ = layers_of(*model_, *execution_, train_view_);
  stream_ = training_stream(shards_);
}

std::string ObjectDetection::describe() const {
  return fmt::format("{}; {} trained on, {} held out; tested on {}", train_->describe(), split_.train.size(),
                     split_.valid.size(), test_->describe());
}

Json ObjectDetection::skipped() const {
  if (!skips_damaged_) return {};
  return {{"train", train_->damaged().size()}, {"test", test_->damaged().size()}};
}

double ObjectDetection::steps_per_epoch() const {
  return static_cast<double>(split_.train.size()) / static_cast<double>(batch_);
}

LoaderOptions ObjectDetection::loader_options(const Shards& shards) const {
  return {.batch_size = batch_, .threads = loader_threads_, .shards = shards};
}

std::unique_ptr<ObjectDetection::Stream> ObjectDetection::training_stream(const Shards& shards) const {
  return std::make_unique<Stream>(split_.train, seed_, DetectionBatchMaker(train_, train_view_, seed_),
                                  loader_options(shards));
}

DetectionBatch ObjectDetection::to_device(DetectionBatch batch) const {
  batch.images = batch.images.to(device_, /*non_blocking=*/true);
  batch.objects = batch.objects.to(device_, /*non_blocking=*/true);
  return batch;
}

const torch::Tensor& ObjectDetection::anchors_for(const torch::Tensor& images) {
  torch::Tensor& anchors = anchors_[{images.size(2), images.size(3)}];
  if (!anchors.defined()) anchors = make_anchors(images.size(2), images.size(3)).to(device_);
  return anchors;
}

DetectorOutput ObjectDetection::output_of(const torch::Tensor& images) {
  if (!stand_in_) return model_->forward(images);
  const std::vector<torch::Tensor> outputs = stand_in_({images});
  return {outputs[0], outputs[1]};
}

torch::Tensor ObjectDetection::forward_loss(const DetectionBatch& batch, DetectorOutput* output) {
  const DetectorOutput says = output_of(batch.images);
  const DetectionLoss loss =
      detection_loss(says.probabilities, says.deltas, anchors_for(batch.images), batch.objects);
  if (output != nullptr) *output = says;
  return loss.classification + loss.box;
}

// Before the first step of a random network, statistics that will be frozen: by every rank, from whole batches.
void ObjectDetection::draw_batch() {
  if (freezes_random_norms_ && execution_->step == 0 && execution_->shard == shards_.first) {
    const StepBits bits = std::exchange(execution_->bits, StepBits{});
    estimate(batches_of(kFirstImages, batch_), /*frozen=*/true);
    execution_->bits = bits;
  }
  last_batch_ = to_device(stream_->next());
}

StepResult ObjectDetection::compute_step() {
  const MacCounter counter(*execution_, layers_);
  const torch::Tensor loss = forward_loss(last_batch_);
  loss.backward();
  const auto items = static_cast<std::int64_t>(last_batch_.items.size());
  return {
      loss.detach(), {}, items, 0, counter.macs(), static_cast<double>(items) / static_cast<double>(batch_)};
}

Evaluation ObjectDetection::evaluate(Split split, Bits bits) {
  return evaluate_sample(split, bits, std::numeric_limits<std::int64_t>::max());
}

Evaluation ObjectDetection::evaluate_sample(Split split, Bits bits, std::int64_t items) {
  const auto& data = split == Split::kTest ? test_ : train_;
  std::vector<std::int64_t> indices = split == Split::kValid ? split_.valid : split_.train;
  if (split == Split::kTest) {
    indices.resize(static_cast<std::size_t>(test_->size()));
    std::iota(indices.begin(), indices.end(), 0);
  }
  indices = sample_of(indices, items);
  const Evaluating evaluating(*model_, *execution_, bits);
  EvalStream<DetectionBatch> stream(items_of_rank(indices, batch_, *ranks_),
                                    DetectionBatchMaker(data, eval_view_, 0), loader_options());
  std::vector<std::string> batches;
  while (const auto batch = stream.next()) {
    const DetectionBatch on_device = to_device(*batch);
    DetectorOutput output;
    Found found;
    found.loss = forward_loss(on_device, &output).item<double>() * static_cast<double>(batch->items.size());
    const auto of_images = find_objects(output, anchors_for(on_device.images), batch->fits);
    for (std::size_t i = 0; i < of_images.size(); ++i) {
      for (Detection detection : of_images[i]) {
        detection.image = batch->items[i];
        found.detections.push_back(detection);
      }
      add_objects(data->annotation(batch->items[i]), batch->fits[i], batch->items[i], found.objects);
    }
    batches.push_back(to_bytes(found));
  }
  Found all;
  for (const std::string& batch : join_batches(*ranks_, batches)) add_bytes(batch, all);
  const auto classes = static_cast<int>(data->classes().size());
  const auto precision = [&](PrecisionForm form) {
    return mean_average_precision(average_precisions(all.detections, all.objects, classes, form));
  };
  const auto n = static_cast<std::int64_t>(indices.size());
  return {precision(PrecisionForm::kArea),
          all.loss / static_cast<double>(n),
          n,
          {{"mAP_11_points", precision(PrecisionForm::kElevenPoints)}}};
}

void ObjectDetection::estimate(std::int64_t batches, bool frozen) {
  const torch::NoGradGuard no_grad;
  const auto for_each_norm = [&](auto&& change) {
    for (const auto& module : model_->modules()) {
      auto* norm = module->as<BatchNormImpl>();
      if (norm != nullptr && (frozen || !norm->options.frozen)) change(*norm);
    }
  };
  for_each_norm([](BatchNormImpl& norm) { norm.start_re_estimation(); });
  const auto stream = training_stream({});
  for (std::int64_t i = 0; i < batches; ++i) model_->forward(to_device(stream->next()).images);
  for_each_norm([](BatchNormImpl& norm) { norm.end_re_estimation(); });
}

void ObjectDetection::re_estimate_statistics() { estimate(kReEstimationBatches, /*frozen=*/false); }

torch::Tensor ObjectDetection::repeat_loss() { return forward_loss(last_batch_); }

}  // namespace lowtide
