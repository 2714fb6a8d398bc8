#pragma once

#include <cstdint>

// One step in time of an LSTM's cell on a GPU: no torch, for nvcc. Rows are items of the batch; a row of gates or of their sums
// holds the input, forget, cell and output gates of all units. `stream` is a cudaStream_t.

namespace lowtide {

struct LstmCellArguments {
  const float* input_sums = nullptr;   // W·x + b
  const float* hidden_sums = nullptr;  // U·h
  const float* cell_before = nullptr;
  float* gates = nullptr;  // out, like all that follows
  float* cell = nullptr;
  float* hidden = nullptr;
  std::int64_t batch = 0, units = 0;
};
void lstm_cell_on_gpu(const LstmCellArguments& a, void* stream);

struct LstmCellGradientArguments {
  const float* output_error = nullptr;  // at y, and what the next step in time adds to it
  const float* hidden_error = nullptr;
  const float* cell_error = nullptr;
  const float* gates = nullptr;
  const float* cell_before = nullptr;
  const float* cell = nullptr;
  float* sums_error = nullptr;         // out: at the sums of the gates
  float* cell_before_error = nullptr;  // out
  std::int64_t batch = 0, units = 0;
};
void lstm_cell_gradient_on_gpu(const LstmCellGradientArguments& a, void* stream);

}  // namespace lowtide
