#pragma once

#include "lowtide/data/image.h"

namespace lowtide {

// The size that an image is given before a detector sees it, and the factor from old to new coordinates.
struct ImageFit {
  double scale = 1;
  int height = 0;
  int width = 0;
};

// As large as the shorter side being `shorter` allows, unless the longer side would exceed `longer`
// (RetinaNet: 608 and 1024).
ImageFit fit_sides(int height, int width, int shorter = 608, int longer = 1024);

// Writes fit.height × fit.width × channels floats in 0..255, HWC: the image in its new size, bilinear, left and
// right exchanged where asked for. Boxes go with it by scaled(box, fit.scale) and, of the new width, flipped().
void resize_image(const Image& image, const ImageFit& fit, bool flip, float* out);

}  // namespace lowtide
