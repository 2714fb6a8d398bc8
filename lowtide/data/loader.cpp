#include "lowtide/data/loader.h"

#include <fmt/format.h>

#include <utility>

#include "lowtide/base/error.h"

namespace lowtide {

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
    : TrainStream(std::move(indices), seed, BatchMaker(std::move(dataset), std::move(augment), seed),
                  options) {}

EvalLoader::EvalLoader(std::shared_ptr<const ImageDataset> dataset, std::vector<std::int64_t> indices,
                       AugmentSpec augment, LoaderOptions options)
    : EvalStream(std::move(indices), BatchMaker(std::move(dataset), std::move(augment), 0), options) {}

}  // namespace lowtide
