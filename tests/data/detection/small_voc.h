#pragma once

// A folder of Pascal VOC made by the tests: images of 80 × 60 and 60 × 80 pixels, each with a bright box on dark ground.

#include <cstdint>
#include <filesystem>

#include "lowtide/data/detection/boxes.h"

namespace lowtide {

inline constexpr int kSmallVocImages = 8;

struct SmallVocObject {
  std::int32_t label;
  BoundingBox box;
};

// Of image i. The third image has no object; the first has a difficult one besides.
SmallVocObject small_voc_object(int image);

// The sets train and val are all of them.
void write_small_voc(const std::filesystem::path& folder);

}  // namespace lowtide
