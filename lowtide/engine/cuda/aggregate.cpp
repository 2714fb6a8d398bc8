#include "lowtide/engine/cuda/aggregate.h"

#include "lowtide/base/cuda_stream.h"
#include "lowtide/base/error.h"
#include "lowtide/engine/cuda/aggregate_kernels.h"

namespace lowtide::cuda {
namespace {

const float* floats_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

}  // namespace

bool can_aggregate(const Quantized& features) {
  const at::ScalarType type = features.code.scalar_type();
  return features.code.is_cuda() && (type == at::kByte || (type == at::kFloat && features.bits == 0));
}

at::Tensor aggregate(const SparseRows& matrix, const Quantized& features) {
  const at::Tensor code = features.code.contiguous(),
                   weights = matrix.weights.defined() ? matrix.weights.contiguous() : at::Tensor();
  AggregateArguments a;
  a.rows = matrix.rows();
  a.width = static_cast<int>(code.size(1));
  a.heads = weights.defined() && weights.dim() == 2 ? static_cast<int>(weights.size(1)) : 1;
  LOWTIDE_CHECK(code.size(0) == matrix.columns, "a row of features for each column");
  LOWTIDE_CHECK(a.width % a.heads == 0, "as many features for each head");
  at::Tensor y = at::empty({a.rows, a.width}, code.options().dtype(at::kFloat));
  if (y.numel() == 0) return y;
  a.offsets = matrix.offsets.data_ptr<std::int64_t>();
  a.indices = matrix.indices.data_ptr<std::int32_t>();
  a.weights = floats_of(weights);
  a.row_factor = floats_of(matrix.row_factor);
  a.column_factor = floats_of(matrix.column_factor);
  if (features.bits == 0) {
    a.values = code.data_ptr<float>();
  } else {
    a.codes = code.data_ptr<std::uint8_t>();
    a.scale = floats_of(features.scale);
    a.offset = floats_of(features.offset);
    a.by_row = features.scale.numel() > 1;
  }
  a.y = y.data_ptr<float>();
  aggregate(a, current_cuda_stream());
  return y;
}

}  // namespace lowtide::cuda
