#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lowtide {

// Edges in pixels, as lines between them: the first pixel lies between 0 and 1.
struct BoundingBox {
  float left = 0;
  float top = 0;
  float right = 0;
  float bottom = 0;

  bool operator==(const BoundingBox&) const = default;
};

double area(const BoundingBox& box);  // 0 for one that is inside out

// Area that both cover over area that one of them covers; 0 where neither has any.
double intersection_over_union(const BoundingBox& a, const BoundingBox& b);

BoundingBox scaled(const BoundingBox& box, double factor);
BoundingBox flipped(const BoundingBox& box, double width);  // left and right of an image so wide exchanged
BoundingBox clipped(const BoundingBox& box, double width, double height);  // to an image of that size

// Greedy non-maximum suppression within each class: from the highest score down, a box is kept unless one
// that is kept, of the same class, overlaps it by more than `threshold`. Returns what is kept, the highest
// score first; of equal scores the earlier.
std::vector<std::int32_t> suppress_non_maxima(std::span<const BoundingBox> boxes,
                                              std::span<const float> scores,
                                              std::span<const std::int32_t> labels, double threshold);

}  // namespace lowtide
