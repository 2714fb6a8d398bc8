#pragma once

#include <ATen/ATen.h>

namespace lowtide {

struct DetectionLoss {
  at::Tensor classification, box;  // one element each, means over the images
};

// RetinaNet's losses (Lin et al. 2017, sections 3 and 4). `probabilities` N × A × classes and `deltas` N × A × 4 are
// what a network says of the anchors (A × 4); `objects` N × M × 5 has the box and the class of each object, -1 where an
// image has fewer than M.
//
// An anchor belongs to the object it overlaps most: by half or more it is to find it, by less than 0.4 it is
// background, between the two it is left alone. The focal loss (alpha 0.25, gamma 2) is summed over anchors and
// classes, smooth L1 (quadratic below 1/9) is the mean over the anchors that find something; both are over the number
// of those, at least 1.
//
// Everything is a masked tensor of a fixed size, so nothing is read on the host.
DetectionLoss detection_loss(const at::Tensor& probabilities, const at::Tensor& deltas,
                             const at::Tensor& anchors, const at::Tensor& objects);

}  // namespace lowtide
