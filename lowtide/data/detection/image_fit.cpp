#include "lowtide/data/detection/image_fit.h"

#include <algorithm>
#include <cmath>

#include "lowtide/base/error.h"
#include "lowtide/data/resample.h"

namespace lowtide {

ImageFit fit_sides(int height, int width, int shorter, int longer) {
  LOWTIDE_CHECK(height >= 1 && width >= 1 && shorter >= 1 && longer >= shorter, "an image to be fitted");
  const double scale = std::min(static_cast<double>(shorter) / std::min(height, width),
                                static_cast<double>(longer) / std::max(height, width));
  const auto side = [scale](int pixels) {
    return std::max(1, static_cast<int>(std::nearbyint(pixels * scale)));
  };
  return {scale, side(height), side(width)};
}

void resize_image(const Image& image, const ImageFit& fit, bool flip, float* out) {
  resample(image,
           {{0, 0, image.height, image.width}, fit.height, fit.width, {0, 0, fit.height, fit.width}, flip},
           out);
}

}  // namespace lowtide
