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

// What a step's gradients are made of.
struct LstmCellErrors {
  at::Tensor output, hidden;  // at the hidden state: from the layer's output, and from the step after it
  at::Tensor cell;            // at the cell, from the step after it
  at::Tensor gates;           // as lstm_cell left them
  at::Tensor cell_before, cell_after;
};
struct LstmCellGradients {
  at::Tensor sums, cell;  // at the sums of the gates, and at the cell before
};

LstmCellGradients lstm_cell_gradient(const LstmCellErrors& of);

}  // namespace lowtide
