#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace lowtide {

// Told of a convolution's result while it is being computed: an image that was just written still lies in its core's
// cache, where another pass over it costs little. An engine that does not work image by image tells nothing at all.
class ImageWatcher {
 public:
  virtual ~ImageWatcher() = default;
  // Before the first image.
  virtual void begin(const at::Tensor& result) = 0;
  // Once for every image, as soon as it is complete, by several threads at once.
  virtual void image(std::int64_t index) = 0;
  // Floats that image() will read with that image, laid out as it is: the engine may prefetch them while it computes the
  // image. Null if there are none.
  virtual const float* prefetch_hint(std::int64_t /*index*/) const { return nullptr; }
};

}  // namespace lowtide
