#include "lowtide/data/detection/boxes.h"

#include <algorithm>
#include <numeric>

#include "lowtide/base/error.h"

namespace lowtide {

double area(const BoundingBox& box) {
  return std::max(0.0, static_cast<double>(box.right) - box.left) *
         std::max(0.0, static_cast<double>(box.bottom) - box.top);
}

double intersection_over_union(const BoundingBox& a, const BoundingBox& b) {
  const double both = area({std::max(a.left, b.left), std::max(a.top, b.top), std::min(a.right, b.right),
                            std::min(a.bottom, b.bottom)});
  const double either = area(a) + area(b) - both;
  return either > 0 ? both / either : 0;
}

BoundingBox scaled(const BoundingBox& box, double factor) {
  return {static_cast<float>(box.left * factor), static_cast<float>(box.top * factor),
          static_cast<float>(box.right * factor), static_cast<float>(box.bottom * factor)};
}

BoundingBox flipped(const BoundingBox& box, double width) {
  return {static_cast<float>(width - box.right), box.top, static_cast<float>(width - box.left), box.bottom};
}

BoundingBox clipped(const BoundingBox& box, double width, double height) {
  const auto within = [](float value, double end) {
    return static_cast<float>(std::clamp(static_cast<double>(value), 0.0, end));
  };
  return {within(box.left, width), within(box.top, height), within(box.right, width),
          within(box.bottom, height)};
}

std::vector<std::int32_t> suppress_non_maxima(std::span<const BoundingBox> boxes,
                                              std::span<const float> scores,
                                              std::span<const std::int32_t> labels, double threshold) {
  LOWTIDE_CHECK(boxes.size() == scores.size() && boxes.size() == labels.size(), "a score and a class a box");
  std::vector<std::int32_t> order(boxes.size()), kept;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  for (const std::int32_t candidate : order) {
    const auto c = static_cast<std::size_t>(candidate);
    const bool suppressed = std::any_of(kept.begin(), kept.end(), [&](std::int32_t winner) {
      const auto w = static_cast<std::size_t>(winner);
      return labels[w] == labels[c] && intersection_over_union(boxes[w], boxes[c]) > threshold;
    });
    if (!suppressed) kept.push_back(candidate);
  }
  return kept;
}

}  // namespace lowtide
