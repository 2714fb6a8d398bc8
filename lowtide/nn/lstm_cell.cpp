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
    lstm_cell_on_gpu(
        {floats(input_sums), floats(hidden_sums), floats(cell_before), to.gates.data_ptr<float>(),
         to.cell.data_ptr<float>(), to.hidden.data_ptr<float>(), to.cell.size(0), to.cell.size(1)},
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

LstmCellGradients lstm_cell_gradient(const at::Tensor& output_error, const at::Tensor& hidden_error,
                                     const at::Tensor& cell_error, const at::Tensor& gates,
                                     const at::Tensor& cell_before, const at::Tensor& cell) {
  LstmCellGradients result{at::empty_like(gates), at::Tensor()};
#if defined(LOWTIDE_WITH_CUDA)
  if (gates.is_cuda()) {
    result.cell = at::empty_like(cell);
    const at::Tensor next_cell_error = cell_error.contiguous();
    lstm_cell_gradient_on_gpu(
        {floats(output_error), floats(hidden_error), floats(next_cell_error), floats(gates),
         floats(cell_before), floats(cell), result.sums.data_ptr<float>(), result.cell.data_ptr<float>(),
         cell.size(0), cell.size(1)},
        current_cuda_stream());
    return result;
  }
#endif
  const std::vector<at::Tensor> gate = gates.chunk(4, -1);
  const at::Tensor error = output_error + hidden_error, squashed = cell.tanh();
  const at::Tensor dc = error * gate[3] * (1 - squashed * squashed) + cell_error;
  const std::vector<at::Tensor> out = result.sums.chunk(4, -1);
  out[0].copy_(dc * gate[2] * gate[0] * (1 - gate[0]));
  out[1].copy_(dc * cell_before * gate[1] * (1 - gate[1]));
  out[2].copy_(dc * gate[0] * (1 - gate[2] * gate[2]));
  out[3].copy_(error * squashed * gate[3] * (1 - gate[3]));
  result.cell = dc * gate[1];
  return result;
}

}  // namespace lowtide
