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

// Σ_o r_w,o²·‖∂L/∂w_o‖² of a layer's weights, by the ranges that their rows are quantised by; undefined where none has a
// gradient.
torch::Tensor weights_term(const std::vector<torch::Tensor>& weights);

// ‖G‖²: of the gradients that parameters have.
torch::Tensor squared_gradient(const std::vector<torch::Tensor>& parameters);

}  // namespace lowtide
