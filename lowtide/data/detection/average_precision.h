#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/data/detection/boxes.h"

namespace lowtide {

struct Detection {
  std::int64_t image = 0;
  std::int32_t label = 0;
  float score = 0;
  BoundingBox box;
};

struct GroundTruth {
  std::int64_t image = 0;
  std::int32_t label = 0;
  BoundingBox box;
  bool difficult = false;  // neither asked for nor held against a detection
};

// How precision over recall becomes one number: its mean at recalls 0, 0.1 … 1 (VOC up to 2009), or the area
// under it (since 2010). Precision at a recall is the best at that recall or a higher one.
enum class PrecisionForm { kElevenPoints, kArea };

// The average precision of each class as the development kit of Pascal VOC computes it (VOCevaldet.m). By
// falling score a detection takes the object of its class and image that it overlaps most: it is right if they
// overlap by `overlap` or more and nobody took that object before, left out if the object is difficult, wrong
// otherwise. NaN for a class without objects that are not difficult.
std::vector<double> average_precisions(std::span<const Detection> detections,
                                       std::span<const GroundTruth> objects, int classes, PrecisionForm form,
                                       double overlap = 0.5);

// The mean over classes that have one; NaN where none has.
double mean_average_precision(std::span<const double> precisions);

}  // namespace lowtide
