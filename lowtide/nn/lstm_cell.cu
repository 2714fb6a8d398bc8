#include <cuda_runtime.h>

#include "lowtide/base/cuda_launch.h"
#include "lowtide/nn/lstm_cell_kernels.h"

namespace lowtide {
namespace {

constexpr int kThreads = 128;

// A thread a unit of an item: where it lies in a row of units, and where its input gate lies in a row of gates.
struct Place {
  std::int64_t unit, gate;

  __device__ Place(std::int64_t index, std::int64_t units)
      : unit(index), gate(index / units * 4 * units + index % units) {}
};

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__global__ void __launch_bounds__(kThreads) cell_kernel(LstmCellArguments a) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= a.batch * a.units) return;
  const Place at(index, a.units);
  float sum[4];
#pragma unroll
  for (int k = 0; k < 4; ++k)
    sum[k] = a.input_sums[at.gate + k * a.units] + a.hidden_sums[at.gate + k * a.units];
  const float gate[4] = {sigmoid(sum[0]), sigmoid(sum[1]), tanhf(sum[2]), sigmoid(sum[3])};
  const float cell = gate[1] * a.cell_before[at.unit] + gate[0] * gate[2];
#pragma unroll
  for (int k = 0; k < 4; ++k) a.gates[at.gate + k * a.units] = gate[k];
  a.cell[at.unit] = cell;
  a.hidden[at.unit] = gate[3] * tanhf(cell);
}

__global__ void __launch_bounds__(kThreads) gradient_kernel(LstmCellGradientArguments a) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= a.batch * a.units) return;
  const Place at(index, a.units);
  float gate[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) gate[k] = a.gates[at.gate + k * a.units];
  const float error = a.output_error[at.unit] + a.hidden_error[at.unit];
  const float squashed = tanhf(a.cell[at.unit]);
  const float cell_error = error * gate[3] * (1 - squashed * squashed) + a.cell_error[at.unit];
  float* out = a.sums_error + at.gate;
  out[0] = cell_error * gate[2] * gate[0] * (1 - gate[0]);
  out[a.units] = cell_error * a.cell_before[at.unit] * gate[1] * (1 - gate[1]);
  out[2 * a.units] = cell_error * gate[0] * (1 - gate[2] * gate[2]);
  out[3 * a.units] = error * squashed * gate[3] * (1 - gate[3]);
  a.cell_before_error[at.unit] = cell_error * gate[1];
}

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

}  // namespace

void lstm_cell_on_gpu(const LstmCellArguments& a, void* stream) {
  cell_kernel<<<blocks_for(a.batch * a.units), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(a);
  check_launch("an LSTM's cell");
}

void lstm_cell_gradient_on_gpu(const LstmCellGradientArguments& a, void* stream) {
  gradient_kernel<<<blocks_for(a.batch * a.units), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(a);
  check_launch("the gradient of an LSTM's cell");
}

}  // namespace lowtide
