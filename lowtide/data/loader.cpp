#include "lowtide/data/loader.h"

#include <fmt/format.h>
#include <unistd.h>

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
    RandomStream random = augmentation_stream(seed_, plan.position + i);
    try {
      augmenter_.apply(image, random, pixels + i * augmenter_.output_size());
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}: {}", dataset_->item_name(item), error.what()));
    }
    labels[i] = dataset_->label(item);
  }
  return batch;
}

namespace {

// Before the first batch is made: a machine that runs out of memory ends the process without a word.
LoaderOptions checked(const LoaderOptions& options, const AugmentSpec& augment, int channels) {
  const LoaderOptions whole = with_defaults(options);
  const double image = 4.0 * channels * augment.out_height * augment.out_width;
  const double needed = image * static_cast<double>(whole.batch_size) * whole.prefetch;
  const double there =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed > there) {
    throw UserError(
        fmt::format("batch is {}: the images of {} batches take {:.1f} GiB, and this machine has {:.1f}; "
                    "choose a smaller --batch",
                    whole.batch_size, whole.prefetch, needed / (1 << 30), there / (1 << 30)));
  }
  return options;
}

}  // namespace

TrainLoader::TrainLoader(std::shared_ptr<const ImageDataset> dataset, std::vector<std::int64_t> indices,
                         std::uint64_t seed, AugmentSpec augment, LoaderOptions options)
    : TrainStream(std::move(indices), seed, BatchMaker(dataset, augment, seed),
                  checked(options, augment, dataset->channels())) {}

EvalLoader::EvalLoader(std::shared_ptr<const ImageDataset> dataset, std::vector<std::int64_t> indices,
                       AugmentSpec augment, LoaderOptions options)
    : EvalStream(std::move(indices), BatchMaker(std::move(dataset), std::move(augment), 0), options) {}

}  // namespace lowtide
