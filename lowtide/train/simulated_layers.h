#pragma once

#include <string>
#include <vector>

#include "lowtide/base/torch.h"
#include "lowtide/nn/execution.h"

namespace lowtide {

// The quantised layers of a model that its engine has no kernels for, in the order of their names' registration: convolutions outside
// trunks, and of shapes that it has none for.
std::vector<std::string> simulated_layers(torch::nn::Module& model, const Execution& execution);

// The same in a line, with the first few names; empty where there are none.
std::string simulated_text(torch::nn::Module& model, const Execution& execution);

}  // namespace lowtide
