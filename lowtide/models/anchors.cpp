#include "lowtide/models/anchors.h"

#include <array>
#include <cmath>
#include <vector>

namespace lowtide {
namespace {

// Of centres and of sizes: what makes targets about as large as normal random numbers.
constexpr double kCentreScale = 0.1;
constexpr double kSizeScale = 0.2;

constexpr std::array kRatios{0.5, 1.0, 2.0};  // height over width

struct Size {
  double width, height;
};

// Around a position of a level: sides of 4 · 2^l, and a third and two thirds of an octave more.
std::vector<Size> anchor_sizes(int level) {
  std::vector<Size> sizes;
  for (const double ratio : kRatios) {
    for (int third = 0; third < 3; ++third) {
      const double side = std::exp2(level + 2 + third / 3.0);
      const double width = std::sqrt(side * side / ratio);
      sizes.push_back({width, width * ratio});
    }
  }
  return sizes;
}

// Centres and sizes of boxes, … × 2 each.
struct CentredBoxes {
  at::Tensor centre, size;
};

CentredBoxes centred(const at::Tensor& boxes) {
  const at::Tensor first = boxes.slice(-1, 0, 2), size = boxes.slice(-1, 2, 4) - first;
  return {first + 0.5 * size, size};
}

}  // namespace

at::Tensor make_anchors(std::int64_t height, std::int64_t width) {
  std::vector<float> boxes;
  for (int level = kFirstLevel; level <= kLastLevel; ++level) {
    const std::int64_t stride = std::int64_t{1} << level;
    const std::vector<Size> sizes = anchor_sizes(level);
    for (std::int64_t row = 0; row < (height + stride - 1) / stride; ++row) {
      for (std::int64_t column = 0; column < (width + stride - 1) / stride; ++column) {
        const double x = (static_cast<double>(column) + 0.5) * static_cast<double>(stride);
        const double y = (static_cast<double>(row) + 0.5) * static_cast<double>(stride);
        for (const Size& size : sizes) {
          for (const double edge :
               {x - 0.5 * size.width, y - 0.5 * size.height, x + 0.5 * size.width, y + 0.5 * size.height}) {
            boxes.push_back(static_cast<float>(edge));
          }
        }
      }
    }
  }
  return at::tensor(boxes).view({-1, 4});
}

at::Tensor decode_boxes(const at::Tensor& anchors, const at::Tensor& deltas) {
  const CentredBoxes from = centred(anchors);
  const at::Tensor centre = from.centre + deltas.slice(-1, 0, 2) * kCentreScale * from.size;
  const at::Tensor size = (deltas.slice(-1, 2, 4) * kSizeScale).exp() * from.size;
  return at::cat({centre - 0.5 * size, centre + 0.5 * size}, -1);
}

at::Tensor encode_boxes(const at::Tensor& anchors, const at::Tensor& boxes) {
  const CentredBoxes from = centred(anchors), to = centred(boxes);
  const at::Tensor shift = (to.centre - from.centre) / from.size;
  const at::Tensor growth = (to.size.clamp_min(1) / from.size).log();
  return at::cat({shift / kCentreScale, growth / kSizeScale}, -1);
}

}  // namespace lowtide
