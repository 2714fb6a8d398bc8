#include "lowtide/data/augment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/data/resample.h"

namespace lowtide {
namespace {

using Kind = AugmentSpec::Kind;

void check(const AugmentSpec& spec, int channels) {
  LOWTIDE_CHECK(channels == 1 || channels == 3, "images are grey or RGB");
  if (spec.out_height < 1 || spec.out_width < 1) {
    throw UserError(fmt::format("augmentation: output of {}x{}; expected at least one pixel", spec.out_width,
                                spec.out_height));
  }
  if (spec.padding < 0)
    throw UserError(fmt::format("augmentation: padding {}; expected 0 or more", spec.padding));
  if (spec.kind == Kind::kResizeCentreCrop && spec.resize < std::max(spec.out_height, spec.out_width)) {
    throw UserError(
        fmt::format("augmentation: the shorter side is resized to {}, less than the crop of {}x{}",
                    spec.resize, spec.out_width, spec.out_height));
  }
  for (const auto& values : {spec.mean, spec.std}) {
    if (!values.empty() && values.size() != static_cast<std::size_t>(channels)) {
      throw UserError(
          fmt::format("augmentation: {} values of mean or std; expected one for each of {} channels",
                      values.size(), channels));
    }
  }
  for (const float value : spec.std) {
    if (!(value > 0)) throw UserError(fmt::format("augmentation: std {}; expected more than 0", value));
  }
}

// UserError where no crop of the output's size can be taken out of an image of this one.
void check_room(const AugmentSpec& spec, int height, int width) {
  if (spec.kind == Kind::kPadCrop) {
    if (height + 2 * spec.padding >= spec.out_height && width + 2 * spec.padding >= spec.out_width) return;
    throw UserError(
        fmt::format("image of {}x{} with padding {}; expected at least {}x{}: --augment "
                    "random-resized-crop takes any size",
                    width, height, spec.padding, spec.out_width, spec.out_height));
  }
  if (height == spec.out_height && width == spec.out_width) return;
  throw UserError(
      fmt::format("image of {}x{}; expected exactly {}x{}: --augment random-resized-crop gives "
                  "images that size in training, --resize in evaluation",
                  width, height, spec.out_width, spec.out_height));
}

template <typename Source>
void normalise(const Source* source, const float* scale, const float* shift, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(source[i]) * scale[i] + shift[i];
}

template <int kChannels>
void copy_reversed(const std::uint8_t* source, int pixels, std::uint8_t* out) {
  for (int x = 0; x < pixels; ++x) {
    for (int c = 0; c < kChannels; ++c) out[x * kChannels + c] = source[(pixels - 1 - x) * kChannels + c];
  }
}

// Inception's crop as torchvision draws it: ten tries for an area and a ratio that fit, else the largest
// centred box within the ratios.
Box draw_resized_crop(int height, int width, RandomStream& random) {
  constexpr double kMinScale = 0.08, kMaxScale = 1.0;
  constexpr double kMinRatio = 3.0 / 4.0, kMaxRatio = 4.0 / 3.0;
  const double area = static_cast<double>(height) * width;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * (kMinScale + (kMaxScale - kMinScale) * random.uniform());
    const double ratio = std::exp(std::log(kMinRatio) + std::log(kMaxRatio / kMinRatio) * random.uniform());
    const int w = static_cast<int>(std::lround(std::sqrt(target * ratio)));
    const int h = static_cast<int>(std::lround(std::sqrt(target / ratio)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const int top = static_cast<int>(random.below(static_cast<std::uint32_t>(height - h + 1)));
    const int left = static_cast<int>(random.below(static_cast<std::uint32_t>(width - w + 1)));
    return {top, left, h, w};
  }
  const int w = std::clamp(static_cast<int>(std::lround(height * kMaxRatio)), 1, width);
  const int h = std::clamp(static_cast<int>(std::lround(width / kMinRatio)), 1, height);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

}  // namespace

Augmenter::Augmenter(AugmentSpec spec, int channels) : spec_(std::move(spec)), channels_(channels) {
  check(spec_, channels);
  for (int x = 0; x < spec_.out_width; ++x) {
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
      const double mean = spec_.mean.empty() ? 0.0 : spec_.mean[c];
      const double deviation = spec_.std.empty() ? 1.0 : spec_.std[c];
      scale_.push_back(static_cast<float>(1.0 / (255.0 * deviation)));
      shift_.push_back(static_cast<float>(-mean / deviation));
    }
  }
}

void Augmenter::apply(const Image& image, RandomStream& random, float* out) const {
  LOWTIDE_CHECK(image.channels == channels_, "an image of other channels than the data set's");
  if (spec_.kind == Kind::kRandomResizedCrop) return random_resized_crop(image, random, out);
  if (spec_.kind == Kind::kResizeCentreCrop) {
    return resize_centre_crop(image, spec_.flip && random.below(2) == 1, out);
  }
  apply(image, draw_crop(image.height, image.width, random), out);
}

Crop Augmenter::draw_crop(int height, int width, RandomStream& random) const {
  LOWTIDE_CHECK(spec_.keeps_pixels(), "a crop of an image as it is");
  check_room(spec_, height, width);
  const int padding = spec_.kind == Kind::kPadCrop ? spec_.padding : 0;
  const int room_y = height + 2 * padding - spec_.out_height;
  const int room_x = width + 2 * padding - spec_.out_width;
  Crop crop;  // the order of the draws is part of the stream
  crop.top = static_cast<int>(random.below(static_cast<std::uint32_t>(room_y + 1))) - padding;
  crop.left = static_cast<int>(random.below(static_cast<std::uint32_t>(room_x + 1))) - padding;
  crop.flip = spec_.flip && random.below(2) == 1;
  return crop;
}

// The border is black before normalisation, as torchvision pads.
void Augmenter::apply(const Image& image, const Crop& crop, float* out) const {
  LOWTIDE_CHECK(image.channels == channels_ && spec_.keeps_pixels(), "a crop of such an image");
  const auto [top, left, flip] = crop;
  const int width = spec_.out_width;
  const int begin = std::clamp(-left, 0, width);  // columns of the output that the image covers
  const int end = std::clamp(image.width - left, begin, width);
  const auto channels = static_cast<std::size_t>(channels_);
  const std::size_t target = static_cast<std::size_t>(flip ? width - end : begin) * channels;
  const std::size_t source = static_cast<std::size_t>(left + begin) * channels;
  const std::size_t covered = static_cast<std::size_t>(end - begin) * channels;
  std::vector<std::uint8_t> row(scale_.size());
  for (int y = top; y < top + spec_.out_height; ++y, out += row.size()) {
    if (y < 0 || y >= image.height || covered == 0) {
      std::copy(shift_.begin(), shift_.end(), out);
      continue;
    }
    const std::uint8_t* pixels = image.row(y) + source;
    if (!flip) {
      std::memcpy(&row[target], pixels, covered);
    } else if (channels_ == 3) {
      copy_reversed<3>(pixels, end - begin, &row[target]);
    } else {
      copy_reversed<1>(pixels, end - begin, &row[target]);
    }
    normalise(row.data(), scale_.data(), shift_.data(), row.size(), out);
  }
}

void Augmenter::random_resized_crop(const Image& image, RandomStream& random, float* out) const {
  Resampling plan;
  plan.source = draw_resized_crop(image.height, image.width, random);
  plan.height = spec_.out_height;
  plan.width = spec_.out_width;
  plan.window = {0, 0, plan.height, plan.width};
  plan.flip = spec_.flip && random.below(2) == 1;
  resample_normalised(image, plan, out);
}

void Augmenter::resize_centre_crop(const Image& image, bool flip, float* out) const {
  const std::int64_t shorter = std::min(image.height, image.width);
  Resampling plan;
  plan.source = {0, 0, image.height, image.width};
  plan.height = static_cast<int>(spec_.resize * std::int64_t{image.height} / shorter);
  plan.width = static_cast<int>(spec_.resize * std::int64_t{image.width} / shorter);
  plan.window = {(plan.height - spec_.out_height) / 2, (plan.width - spec_.out_width) / 2, spec_.out_height,
                 spec_.out_width};
  plan.flip = flip;
  resample_normalised(image, plan, out);
}

void Augmenter::resample_normalised(const Image& image, const Resampling& plan, float* out) const {
  resample(image, plan, out);
  for (int y = 0; y < spec_.out_height; ++y, out += scale_.size()) {
    normalise(out, scale_.data(), shift_.data(), scale_.size(), out);
  }
}

}  // namespace lowtide
