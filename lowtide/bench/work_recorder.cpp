#include "lowtide/bench/work_recorder.h"

#include <algorithm>

namespace lowtide {
namespace {

constexpr double kFloat = sizeof(float);

std::int64_t batch_macs(const ConvShape& shape) { return shape.input[0] * shape.macs(); }

}  // namespace

void WorkRecorder::read(const at::Tensor& tensor, double bytes) const {
  Operand& operand = operands_[{tensor.data_ptr(), tensor.numel()}];
  operand.kept = tensor;
  operand.bytes = bytes;
  ++operand.reads;
}

void WorkRecorder::read(const Quantized& operand) const {
  const auto numbers = static_cast<double>(operand.code.numel());
  read(operand.code, fits_bytes(operand.bits) ? numbers : kFloat * numbers);
}

void WorkRecorder::record(const Quantized& a, const Quantized& b, std::int64_t macs) const {
  read(a);
  read(b);
  (fits_bytes(a.bits) && fits_bytes(b.bits) ? byte_macs_ : float_macs_) += static_cast<double>(macs);
}

LeastWork WorkRecorder::work() const {
  LeastWork work{.byte_macs = byte_macs_, .float_macs = float_macs_};
  for (const auto& [memory, operand] : operands_)
    work.bytes += operand.bytes * (1 + std::min(operand.reads, 2));
  return work;
}

at::Tensor WorkRecorder::conv2d(const Quantized& x, const Quantized& w, const ConvShape& shape) const {
  record(x, w, batch_macs(shape));
  return simulated_.conv2d(x, w, shape);
}

at::Tensor WorkRecorder::conv2d_input_gradient(const Quantized& dy, const Quantized& w,
                                               const ConvShape& shape) const {
  record(dy, w, batch_macs(shape));
  return simulated_.conv2d_input_gradient(dy, w, shape);
}

at::Tensor WorkRecorder::conv2d_weight_gradient(const Quantized& dy, const Quantized& x,
                                                const ConvShape& shape) const {
  record(dy, x, batch_macs(shape));
  return simulated_.conv2d_weight_gradient(dy, x, shape);
}

at::Tensor WorkRecorder::product(const Quantized& a, const Quantized& b, const ProductShape& shape) const {
  at::Tensor y = simulated_.product(a, b, shape);
  record(a, b, y.numel() * a.code.size(shape.transpose_a ? -2 : -1));
  return y;
}

// A factor an entry: one multiply-accumulate for each of a row's features, of floats.
at::Tensor WorkRecorder::aggregate(const SparseRows& matrix, const Quantized& features) const {
  read(features);
  for (const at::Tensor* part : {&matrix.offsets, &matrix.indices, &matrix.weights})
    if (part->defined()) read(*part, static_cast<double>(part->numel() * part->element_size()));
  float_macs_ += static_cast<double>(matrix.indices.numel() * features.code.size(-1));
  return simulated_.aggregate(matrix, features);
}

double least_update_bytes(std::int64_t parameters, std::int64_t optimizer_numbers) {
  return 2 * kFloat * static_cast<double>(2 * parameters + optimizer_numbers);
}

}  // namespace lowtide
