#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/engine/conv_shape.h"

namespace lowtide {

struct ModelShape {
  ConvShape shape;
  std::vector<std::string> models;  // that have a layer of this shape
};

// The different convolutions of image models, in the order in which they are met; `batch` of 32×32 images, of larger ones as many as
// have the same pixels, at least 16.
std::vector<ModelShape> model_shapes(const std::vector<std::string>& models, std::int64_t batch);

}  // namespace lowtide
