#include "lowtide/nn/lstm_cell.h"

#include "lowtide/base/cuda_stream.h"
#include "lowtide/nn/lstm_cell_kernels.h"
#include "lowtide/nn/pointwise.h"

namespace lowtide {
namespace {

at::Tensor activate_gates(const at::Tensor& sums) {
  at::Tensor gates = lowtide::sigmoid(sums);
  const std::int64_t units = sums.size(-1) / 4;
  gates.narrow(-1, 2 * units, units).copy_(sums.narrow(-1, 2 * units, units).tanh());
  return gates;
}

#if defined(LOWTIDE_WITH_CUDA)
const float* floats(const at::Tensor& x) { return x.data_ptr<float>(); }
#endif

}  // namespace

void lstm_cell(at::Tensor input_sums, const at::Tensor& hidden_sums, const at::Tensor& cell_before,
               const LstmCellResult& to) {
#if defined(LOWTIDE_WITH_CUDA)
  if (input_sums.is_cuda()) {
    lstm_cell_on_gpu({.input_sums = floats(input_sums),
                      .hidden_sums = floats(hidden_sums),
                      .cell_before = floats(cell_before),
                      .gates = to.gates.data_ptr<float>(),
                      .cell = to.cell.data_ptr<float>(),
                      .hidden = to.hidden.data_ptr<float>(),
                      .batch = to.cell.size(0),
                      .units = to.cell.size(1)},
                     current_cuda_stream());
    return;
  }
#endif
  const at::Tensor gates = activate_gates(input_sums.add_(hidden_sums));
  to.gates.copy_(gates);
  const std::vector<at::Tensor> gate = gates.chunk(4, -1);
  to.cell.copy_(gate[1] * cell_before + gate[0] * gate[2]);
  to.hidden.copy_(gate[3] * to.cell.tanh());
}

LstmCellGradients lstm_cell_gradient(const LstmCellErrors& of) {
  LstmCellGradients result{.sums = at::empty_like(of.gates), .cell = {}};
#if defined(LOWTIDE_WITH_CUDA)
  if (of.gates.is_cuda()) {
    result.cell = at::empty_like(of.cell_after);
    const at::Tensor next_cell_error = of.cell.contiguous();
    lstm_cell_gradient_on_gpu({.output_error = floats(of.output),
                               .hidden_error = floats(of.hidden),
                               .cell_error = floats(next_cell_error),
                               .gates = floats(of.gates),
                               .cell_before = floats(of.cell_before),
                               .cell = floats(of.cell_after),
                               .sums_error = result.sums.data_ptr<float>(),
                               .cell_before_error = result.cell.data_ptr<float>(),
                               .batch = of.cell_after.size(0),
                               .units = of.cell_after.size(1)},
                              current_cuda_stream());
    return result;
  }
#endif
  const std::vector<at::Tensor> gate = of.gates.chunk(4, -1);
  const at::Tensor error = of.output + of.hidden, squashed = of.cell_after.tanh();
  const at::Tensor dc = error * gate[3] * (1 - squashed * squashed) + of.cell;
  const std::vector<at::Tensor> out = result.sums.chunk(4, -1);
  out[0].copy_(dc * gate[2] * gate[0] * (1 - gate[0]));
  out[1].copy_(dc * of.cell_before * gate[1] * (1 - gate[1]));
  out[2].copy_(dc * gate[0] * (1 - gate[2] * gate[2]));
  out[3].copy_(error * squashed * gate[3] * (1 - gate[3]));
  result.cell = dc * gate[1];
  return result;
}

}  // namespace lowtide
