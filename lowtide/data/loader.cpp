#include "lowtide/data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

LoaderOptions with_defaults(LoaderOptions options) {
  LOWTIDE_CHECK(options.batch_size >= 1, "a batch of at least one");
  if (options.threads < 1)
    options.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
  if (options.prefetch < 1) options.prefetch = 2 * options.threads;
  return options;
}

}  // namespace

BatchMaker::BatchMaker(std::shared_ptr<const ImageDataset> dataset, AugmentSpec augment, std::uint64_t seed)
    : dataset_(std::move(dataset)), augmenter_(std::move(augment), dataset_->channels()), seed_(seed) {}

Batch BatchMaker::operator()(const BatchPlan& plan, const std::stop_token& stop) const {
  const auto count = static_cast<std::int64_t>(plan.items.size());
  const AugmentSpec& spec = augmenter_.spec();
  Batch batch{
      torch::empty({count, augmenter_.channels(), spec.out_height, spec.out_width},
                   torch::TensorOptions(torch::kFloat32).memory_format(torch::MemoryFormat::ChannelsLast)),
      torch::empty({count}, torch::kInt64)};
  auto* pixels = batch.images.data_ptr<float>();
  auto* labels = batch.labels.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count && !stop.stop_requested(); ++i) {
    const std::int64_t item = plan.items[static_cast<std::size_t>(i)];
    const Image image = dataset_->image(item);
    RandomStream random(seed_, RandomPurpose::kAugmentation, static_cast<std::uint64_t>(plan.position + i));
    try {
      augmenter_.apply(image, random, pixels + i * augmenter_.output_size());
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}: {}", dataset_->item_name(item), error.what()));
    }
    labels[i] = dataset_->label(item);
  }
  return batch;
}

TrainLoader::TrainLoader(std::shared_ptr<const ImageDataset> dataset, std::vector<std::int64_t> indices,
                         std::uint64_t seed, AugmentSpec augment, LoaderOptions options)
    : indices_(std::move(indices)),
      options_(with_defaults(options)),
      maker_(std::move(dataset), std::move(augment), seed),
      sampler_(seed, static_cast<std::int64_t>(indices_.size())) {}

std::optional<BatchPlan> TrainLoader::plan() {
  BatchPlan plan;
  plan.position = sampler_.position();
  plan.items = sampler_.next_batch(options_.batch_size);
  for (std::int64_t& item : plan.items) item = indices_[static_cast<std::size_t>(item)];
  return plan;
}

Batch TrainLoader::next() {
  if (!workers_) {
    workers_ = std::make_unique<OrderedPrefetcher<BatchPlan, Batch>>([this] { return plan(); }, maker_,
                                                                     options_.threads, options_.prefetch);
  }
  std::optional<Batch> batch = workers_->next();
  LOWTIDE_CHECK(batch.has_value(), "an endless stream");
  handed_ += options_.batch_size;
  return *std::move(batch);
}

void TrainLoader::restore(const Json& state) {
  workers_.reset();  // what was made ahead belongs to the old position
  sampler_.seek(handed_);
  sampler_.restore(state);
  handed_ = sampler_.position();
}

EvalLoader::EvalLoader(std::shared_ptr<const ImageDataset> dataset, std::vector<std::int64_t> indices,
                       AugmentSpec augment, LoaderOptions options)
    : indices_(std::move(indices)),
      options_(with_defaults(options)),
      maker_(std::move(dataset), std::move(augment), 0) {}

std::optional<BatchPlan> EvalLoader::plan() {
  if (planned_ == indices_.size()) return std::nullopt;
  const std::size_t end = std::min(indices_.size(), planned_ + static_cast<std::size_t>(options_.batch_size));
  BatchPlan plan;
  plan.position = static_cast<std::int64_t>(planned_);
  plan.items.assign(indices_.begin() + plan.position, indices_.begin() + static_cast<std::ptrdiff_t>(end));
  planned_ = end;
  return plan;
}

std::optional<Batch> EvalLoader::next() {
  if (!workers_) {
    workers_ = std::make_unique<OrderedPrefetcher<BatchPlan, Batch>>([this] { return plan(); }, maker_,
                                                                     options_.threads, options_.prefetch);
  }
  return workers_->next();
}

void EvalLoader::rewind() {
  workers_.reset();
  planned_ = 0;
}

}  // namespace lowtide
