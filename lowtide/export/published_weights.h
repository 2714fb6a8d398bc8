#pragma once

#include <string>
#include <vector>

#include "lowtide/io/safetensors.h"

namespace lowtide {

// The weights and statistics of a checkpoint under the names that torchvision or Hugging Face's transformers have for them; the
// data stays the file's. Running ranges, the optimiser and the rest of a checkpoint are left out. UserError for a network that
// neither has.
std::vector<TensorView> published_weights(const SafetensorsFile& checkpoint, const std::string& model);

}  // namespace lowtide
