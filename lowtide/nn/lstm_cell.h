#pragma once

#include <ATen/ATen.h>

// One step in time of an LSTM's cell, in fp32: batch × units, and batch × 4 units of the input, forget, cell and output gates.

namespace lowtide {

// Where the results of a step go.
struct LstmCellResult {
  at::Tensor gates;  // after their sigmoid or tanh
  at::Tensor cell, hidden;
};

// From the two parts of the gates' sums, W·x + b and U·h, of which the first may be overwritten.
void lstm_cell(at::Tensor input_sums, const at::Tensor& hidden_sums, const at::Tensor& cell_before,
               const LstmCellResult& to);

struct LstmCellGradients {
  at::Tensor sums, cell;  // at the sums of the gates, and at the cell before
};

// From the gradients at the step's outputs: at its hidden state from above and from the step after it, and at its cell.
LstmCellGradients lstm_cell_gradient(const at::Tensor& output_error, const at::Tensor& hidden_error,
                                     const at::Tensor& cell_error, const at::Tensor& gates,
                                     const at::Tensor& cell_before, const at::Tensor& cell);

}  // namespace lowtide
