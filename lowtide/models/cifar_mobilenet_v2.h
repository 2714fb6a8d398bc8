#pragma once

#include "lowtide/models/image_model.h"

namespace lowtide {

// MobileNetV2 for 32×32 images: the first convolution and the second stage keep the size.
std::shared_ptr<ImageModel> make_cifar_mobilenet_v2(std::int64_t channels, std::int64_t classes);

}  // namespace lowtide
