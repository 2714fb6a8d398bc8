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
};

// Thread-safe: an image and a random stream determine the result.
class Augmenter {
 public:
  Augmenter(AugmentSpec spec, int channels);  // UserError for a spec that cannot be

  const AugmentSpec& spec() const { return spec_; }
  int channels() const { return channels_; }
  std::int64_t output_size() const { return std::int64_t{spec_.out_height} * spec_.out_width * channels_; }

  // Writes output_size() floats, HWC: (value / 255 − mean) / std. UserError when the image does not fit the
  // spec.
  void apply(const Image& image, RandomStream& random, float* out) const;

 private:
  void crop_padded(const Image& image, int top, int left, bool flip, float* out) const;
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
