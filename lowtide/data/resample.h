#pragma once

#include "lowtide/data/image.h"

namespace lowtide {

struct Box {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
};

// `source`, a box of the image, is resized to height × width; of the result only `window` is computed.
struct Resampling {
  Box source;
  int height = 0;
  int width = 0;
  Box window;
  bool flip = false;  // left and right of the window exchanged
};

// Writes window.height × window.width × channels floats in 0..255, HWC. Bilinear with antialiasing, as Pillow
// and torchvision do it: a triangle as wide as the step between output pixels when it shrinks, so that every
// input pixel counts; plain bilinear when it enlarges. Without Pillow's rounding to 8 bits after each
// direction.
void resample(const Image& image, const Resampling& plan, float* out);

}  // namespace lowtide
