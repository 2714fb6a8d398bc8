#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/data/detection/average_precision.h"
#include "lowtide/data/detection/image_fit.h"
#include "lowtide/models/retinanet.h"

namespace lowtide {

// From what a detector says of the anchors to boxes, for each image of a batch, the surest first: the 1,000 surest pairs
// of anchor and class above a score of 0.05, cut at the image's edge, without those that overlap a surer one of their
// class by more than half; at most 100. Boxes are in pixels of the batch's images; `fits` has the size of each there.
std::vector<std::vector<Detection>> find_objects(const DetectorOutput& output, const at::Tensor& anchors,
                                                 std::span<const ImageFit> fits);

}  // namespace lowtide
