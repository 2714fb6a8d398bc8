#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/base/random.h"
#include "lowtide/data/image.h"

namespace lowtide {

struct Resampling;

// From an image of a file to the numbers a network sees: out_height × out_width × channels.
struct AugmentSpec {
  enum class Kind {
    kNone,               // the image as it is, of the output's size
    kPadCrop,            // black border of `padding` pixels, then a random crop (CIFAR)
    kRandomResizedCrop,  // 8..100 % of the area at ratio 3/4..4/3, resized (ImageNet, training)
    kResizeCentreCrop    // shorter side to `resize`, then the centre (ImageNet, evaluation)
  };
  Kind kind = Kind::kNone;
  int padding = 0;
  int resize = 0;
  bool flip = false;        // left and right exchanged, half of the time
  std::vector<float> mean;  // per channel, of values in 0..1; empty: 0
  std::vector<float> std;   // per channel; empty: 1
  int out_height = 0;
  int out_width = 0;

  // Nothing is resampled: each pixel of the output is one of the image or of its border.
  bool keeps_pixels() const { return kind == Kind::kNone || kind == Kind::kPadCrop; }
};

// What is cut out of an image. The corner may lie outside, in the border.
struct Crop {
  int top = 0;
  int left = 0;
  bool flip = false;
};

// The random numbers of one item, by its position in the stream of training items.
inline RandomStream augmentation_stream(std::uint64_t seed, std::int64_t position) {
  return {seed, RandomPurpose::kAugmentation, static_cast<std::uint64_t>(position)};
}

// Thread-safe: an image and a random stream determine the result.
class Augmenter {
 public:
  Augmenter(AugmentSpec spec, int channels);  // UserError for a spec that cannot be

  const AugmentSpec& spec() const { return spec_; }
  int channels() const { return channels_; }
  std::int64_t output_size() const { return std::int64_t{spec_.out_height} * spec_.out_width * channels_; }

  // value · scale + shift is what a network sees of a byte.
  float scale(int channel) const { return scale_[static_cast<std::size_t>(channel)]; }
  float shift(int channel) const { return shift_[static_cast<std::size_t>(channel)]; }

  // Writes output_size() floats, HWC: (value / 255 − mean) / std. UserError when the image does not fit the
  // spec.
  void apply(const Image& image, RandomStream& random, float* out) const;

  // The same in two parts, for specs that keep pixels: what is drawn for an image of this size, and its use.
  Crop draw_crop(int height, int width, RandomStream& random) const;
  void apply(const Image& image, const Crop& crop, float* out) const;

 private:
  void random_resized_crop(const Image& image, RandomStream& random, float* out) const;
  void resize_centre_crop(const Image& image, bool flip, float* out) const;
  void resample_normalised(const Image& image, const Resampling& plan, float* out) const;

  AugmentSpec spec_;
  int channels_;
  // value · scale + shift over one output row: written out per element, so that three interleaved channels
  // normalise in one loop that vectorises.
  std::vector<float> scale_;
  std::vector<float> shift_;
};

}  // namespace lowtide
