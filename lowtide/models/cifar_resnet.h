#pragma once

#include "lowtide/models/image_model.h"

namespace lowtide {

// He et al. 2016, section 4.2: 6n + 2 layers for small images, three groups of n blocks with 16, 32 and 64
// channels. The shortcut of a group's first block is a 1×1 convolution of stride 2 with a normalisation of
// its own.
std::shared_ptr<ImageModel> make_cifar_resnet(int layers, std::int64_t channels, std::int64_t classes);

}  // namespace lowtide
