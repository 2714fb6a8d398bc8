#include "lowtide/data/device_images.h"

#include <fmt/format.h>

#include <utility>

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/error.h"

namespace lowtide {
namespace {

// Of a data set: little beside a GPU's memory, and its images can be counted in 32 bits.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 31;

// Draws what BatchMaker would, and leaves the pixels alone.
class TableMaker {
 public:
  TableMaker(std::shared_ptr<const ImageDataset> dataset, AugmentSpec augment, std::uint64_t seed)
      : dataset_(std::move(dataset)), augmenter_(std::move(augment), dataset_->channels()), seed_(seed) {}

  torch::Tensor operator()(const BatchPlan& plan, const std::stop_token&) const {
    const auto count = static_cast<std::int64_t>(plan.items.size());
    torch::Tensor table = torch::empty({count, CropItem::kColumns}, torch::kInt32);
    auto* row = static_cast<CropItem*>(table.data_ptr());
    std::int64_t position = plan.position;
    for (const std::int64_t item : plan.items) *row++ = drawn(item, position++);
    return table;
  }

 private:
  CropItem drawn(std::int64_t item, std::int64_t position) const {
    RandomStream random = augmentation_stream(seed_, position);
    try {
      const Crop crop = augmenter_.draw_crop(dataset_->height(), dataset_->width(), random);
      return {static_cast<std::int32_t>(item), crop.top, crop.left, crop.flip ? 1 : 0, dataset_->label(item)};
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}: {}", dataset_->item_name(item), error.what()));
    }
  }

  std::shared_ptr<const ImageDataset> dataset_;
  Augmenter augmenter_;
  std::uint64_t seed_;
};

}  // namespace

DevicePixels::DevicePixels(std::shared_ptr<const ImageDataset> dataset, torch::Device device)
    : dataset_(std::move(dataset)) {
  const auto pixels = dataset_->pixels();
  const auto bytes = static_cast<std::int64_t>(pixels.size());
  LOWTIDE_CHECK(bytes > 0 && bytes <= kMostBytes, "images in memory, and not too many");
  bytes_ = torch::from_blob(const_cast<std::uint8_t*>(pixels.data()), {bytes}, torch::kUInt8).to(device);
}

BatchGather::BatchGather(std::shared_ptr<const DevicePixels> pixels, const AugmentSpec& augment,
                         std::int64_t batch_size)
    : pixels_(std::move(pixels)), augmenter_(augment, pixels_->dataset()->channels()) {
  const torch::TensorOptions options(pixels_->device());
  table_ = torch::empty({batch_size, CropItem::kColumns}, options.dtype(torch::kInt32));
  batch_.images =
      torch::empty({batch_size, augmenter_.channels(), augment.out_height, augment.out_width},
                   options.dtype(torch::kFloat32).memory_format(torch::MemoryFormat::ChannelsLast));
  batch_.labels = torch::empty({batch_size}, options.dtype(torch::kInt64));
}

void BatchGather::load(const torch::Tensor& table) {
  count_ = table.size(0);
  LOWTIDE_CHECK(count_ >= 1 && count_ <= table_.size(0), "a batch of the size that there is room for");
  copy_to_static(table, table_.narrow(0, 0, count_));
}

Batch BatchGather::batch() const {
  LOWTIDE_CHECK(count_ >= 1, "a batch that was prepared");
  gather();
  if (count_ == table_.size(0)) return batch_;
  return {batch_.images.narrow(0, 0, count_), batch_.labels.narrow(0, 0, count_)};
}

void BatchGather::gather() const {
  const torch::Device device = pixels_->device();
  if (device.is_cpu()) return gather_on_cpu();
#if defined(LOWTIDE_WITH_CUDA)
  if (device.is_cuda()) return gather_images(arguments(), current_cuda_stream(device.index()));
#endif
  invariant_failed("a device that makes batches", __FILE__, __LINE__, device.str());
}

GatherArguments BatchGather::arguments() const {
  const AugmentSpec& spec = augmenter_.spec();
  GatherArguments a;
  a.pixels = pixels_->data();
  a.items = static_cast<const CropItem*>(table_.data_ptr());
  a.images = batch_.images.data_ptr<float>();
  a.labels = batch_.labels.data_ptr<std::int64_t>();
  a.count = count_;
  a.height = pixels_->dataset()->height();
  a.width = pixels_->dataset()->width();
  a.channels = augmenter_.channels();
  a.out_height = spec.out_height;
  a.out_width = spec.out_width;
  for (int c = 0; c < a.channels; ++c) {
    a.scale[c] = augmenter_.scale(c);
    a.shift[c] = augmenter_.shift(c);
  }
  return a;
}

// The kernel's work by the Augmenter itself.
void BatchGather::gather_on_cpu() const {
  const GatherArguments a = arguments();
  const std::int64_t bytes = std::int64_t{a.height} * a.width * a.channels;
  for (std::int64_t i = 0; i < a.count; ++i) {
    const CropItem& item = a.items[i];
    const std::uint8_t* first = a.pixels + item.index * bytes;
    const Image image{a.height, a.width, a.channels, {first, first + bytes}};
    augmenter_.apply(image, Crop{item.top, item.left, item.flip != 0},
                     a.images + i * augmenter_.output_size());
    a.labels[i] = item.label;
  }
}

bool DeviceImages::fits(const ImageDataset& dataset, const AugmentSpec& augment, torch::Device device) {
  const auto bytes = static_cast<std::int64_t>(dataset.pixels().size());
  // The kernel counts the floats of an image in 32 bits.
  const std::int64_t image =
      std::int64_t{augment.out_height} * augment.out_width * dataset.channels() * std::int64_t{sizeof(float)};
  return kWithCuda && device.is_cuda() && augment.keeps_pixels() && bytes > 0 && bytes <= kMostBytes &&
         image <= kMostBytes;
}

DeviceImages::DeviceImages(std::shared_ptr<const DevicePixels> pixels, std::vector<std::int64_t> indices,
                           std::uint64_t seed, const AugmentSpec& augment, LoaderOptions options)
    : gather_(pixels, augment, options.batch_size),
      tables_(std::move(indices), seed, TableMaker(pixels->dataset(), augment, seed), options) {}

DeviceEvalImages::DeviceEvalImages(std::shared_ptr<const DevicePixels> pixels,
                                   std::vector<std::int64_t> indices, const AugmentSpec& augment,
                                   LoaderOptions options)
    : gather_(pixels, augment, options.batch_size),
      tables_(std::move(indices), TableMaker(pixels->dataset(), augment, 0), options) {}

std::optional<Batch> DeviceEvalImages::next() {
  const std::optional<torch::Tensor> table = tables_.next();
  if (!table) return std::nullopt;
  gather_.load(*table);
  return gather_.batch();
}

}  // namespace lowtide
