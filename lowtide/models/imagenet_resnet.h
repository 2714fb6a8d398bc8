#pragma once

#include "lowtide/models/image_model.h"

namespace lowtide {

// He et al. 2016, table 1: 18, 34 (basic blocks) or 50 (bottlenecks) layers for 224×224 images. The first
// 7×7, the shortcuts and the classifier stay in full precision.
std::shared_ptr<ImageModel> make_imagenet_resnet(int layers, std::int64_t channels, std::int64_t classes);

}  // namespace lowtide
