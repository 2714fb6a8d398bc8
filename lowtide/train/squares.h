#pragma once

#include <vector>

#include "lowtide/base/torch.h"

namespace lowtide {

// Sums as doubles, the same for any number of threads, as all that is logged or decided by.

// Of a row of doubles. On a CPU libtorch cuts it into a part for each thread from 32,768 numbers on.
torch::Tensor sum_in_order(const torch::Tensor& row);

torch::Tensor sum_of_squares(const torch::Tensor& x);
// Of each row of a weight's gradient.
torch::Tensor row_squares(const torch::Tensor& gradient);

// ‖G‖²: of the gradients that parameters have.
torch::Tensor squared_gradient(const std::vector<torch::Tensor>& parameters);

}  // namespace lowtide
