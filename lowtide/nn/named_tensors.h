#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

namespace lowtide {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace lowtide
