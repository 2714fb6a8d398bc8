#pragma once

#include <cstddef>
#include <vector>

#include "lowtide/data/image.h"

namespace lowtide {

// An RGB image as the bytes of a PNG file.
std::vector<std::byte> encode_rgb_png(const Image& image);

}  // namespace lowtide
