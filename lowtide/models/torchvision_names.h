#pragma once

#include <string>

namespace lowtide {

// The name that torchvision has for a tensor of a ResNet: layer2.0.shortcut_norm.running_variance is
// layer2.0.downsample.1.running_var.
std::string torchvision_name(std::string name);

}  // namespace lowtide
