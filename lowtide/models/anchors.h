#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace lowtide {

// The levels of a feature pyramid that RetinaNet predicts from: level l has a position for every 2^l pixels.
inline constexpr int kFirstLevel = 3;
inline constexpr int kLastLevel = 7;
inline constexpr std::int64_t kAnchorsAPosition = 9;  // three ratios × three scales

// Boxes (left, top, right, bottom) that predictions start from, A × 4, on the host (Lin et al. 2017, section 4). Level
// by level, in a level row by row, at a position ratio by ratio. A level has ceil(side / 2^l) positions along a side.
at::Tensor make_anchors(std::int64_t height, std::int64_t width);

// Boxes from what a network says of each anchor (… × A × 4): the shift of the centre, in sizes of the anchor, and the
// logarithm of the ratio of sizes, in units of 0.1 and 0.2.
at::Tensor decode_boxes(const at::Tensor& anchors, const at::Tensor& deltas);

// The other way: the deltas from anchors (… × 4) to boxes (… × 4). A box narrower than a pixel counts as one.
at::Tensor encode_boxes(const at::Tensor& anchors, const at::Tensor& boxes);

}  // namespace lowtide
