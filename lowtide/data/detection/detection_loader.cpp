#include "lowtide/data/detection/detection_loader.h"

#include <algorithm>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/random.h"

namespace lowtide {
namespace {

constexpr std::int64_t kChannels = 3;

std::vector<VocObject> to_be_found(const VocAnnotation& annotation) {
  std::vector<VocObject> objects;
  std::copy_if(annotation.objects.begin(), annotation.objects.end(), std::back_inserter(objects),
               [](const VocObject& object) { return !object.difficult; });
  return objects;
}

}  // namespace

std::int64_t padded_side(std::int64_t side) { return (side + 31) / 32 * 32; }

void place_image(const Image& image, const ImageFit& fit, const DetectionView& view, bool flip,
                 std::int64_t width, float* out) {
  LOWTIDE_CHECK(image.channels == kChannels, "an image in colours");
  std::vector<float> pixels(static_cast<std::size_t>(fit.height) * static_cast<std::size_t>(fit.width) *
                            kChannels);
  resize_image(image, fit, flip, pixels.data());
  float scale[kChannels], shift[kChannels];
  for (std::size_t c = 0; c < kChannels; ++c) {
    const double deviation = view.std.empty() ? 1.0 : view.std[c],
                 mean = view.mean.empty() ? 0.0 : view.mean[c];
    scale[c] = static_cast<float>(1 / (255 * deviation));
    shift[c] = static_cast<float>(-mean / deviation);
  }
  const float* in = pixels.data();
  for (int y = 0; y < fit.height; ++y) {
    float* row = out + y * width * kChannels;
    for (int x = 0; x < fit.width; ++x) {
      for (int c = 0; c < kChannels; ++c) *row++ = *in++ * scale[c] + shift[c];
    }
  }
}

DetectionBatchMaker::DetectionBatchMaker(std::shared_ptr<const VocDataset> dataset, DetectionView view,
                                         std::uint64_t seed)
    : dataset_(std::move(dataset)), view_(std::move(view)), seed_(seed) {}

DetectionBatch DetectionBatchMaker::operator()(const BatchPlan& plan, const std::stop_token& stop) const {
  DetectionBatch batch;
  batch.items = plan.items;
  std::int64_t height = 0, width = 0;
  std::size_t most = 1;  // a tensor without objects would have no largest overlap
  for (const std::int64_t item : plan.items) {
    const VocAnnotation& annotation = dataset_->annotation(item);
    batch.fits.push_back(fit_sides(annotation.height, annotation.width, view_.shorter, view_.longer));
    height = std::max(height, padded_side(batch.fits.back().height));
    width = std::max(width, padded_side(batch.fits.back().width));
    most = std::max(most, to_be_found(annotation).size());
  }
  const auto count = static_cast<std::int64_t>(plan.items.size());
  batch.images =
      torch::empty({count, kChannels, height, width},
                   torch::TensorOptions(torch::kFloat32).memory_format(torch::MemoryFormat::ChannelsLast));
  batch.objects = torch::empty({count, static_cast<std::int64_t>(most), 5});
  auto* pixels = batch.images.data_ptr<float>();
  auto* objects = batch.objects.data_ptr<float>();
  std::fill_n(pixels, batch.images.numel(), 0.0f);
  std::fill_n(objects, batch.objects.numel(), -1.0f);
  for (std::size_t i = 0; i < plan.items.size() && !stop.stop_requested(); ++i) {
    RandomStream random(seed_, RandomPurpose::kAugmentation, static_cast<std::uint64_t>(plan.position) + i);
    const bool flip = view_.flip && random.below(2) == 1;
    const ImageFit& fit = batch.fits[i];
    place_image(dataset_->image(plan.items[i]), fit, view_, flip, width,
                pixels + static_cast<std::int64_t>(i) * height * width * kChannels);
    float* object = objects + i * most * 5;
    for (const VocObject& found : to_be_found(dataset_->annotation(plan.items[i]))) {
      const BoundingBox box =
          flip ? flipped(scaled(found.box, fit.scale), fit.width) : scaled(found.box, fit.scale);
      for (const float value : {box.left, box.top, box.right, box.bottom, static_cast<float>(found.label)})
        *object++ = value;
    }
  }
  return batch;
}

}  // namespace lowtide
