#include "lowtide/nn/gather.h"

#include <algorithm>

#include "lowtide/base/torch.h"

namespace lowtide {
namespace {

template <typename T>
at::Tensor to_device(const std::vector<T>& values, const at::Device& device) {
  const auto options = torch::TensorOptions(c10::CppTypeToScalarType<T>::value);
  const at::Tensor there =
      torch::from_blob(const_cast<T*>(values.data()), static_cast<std::int64_t>(values.size()), options);
  return there.to(device, /*non_blocking=*/false, /*copy=*/true);
}

SparseRows to_device(const Csr& rows, const at::Device& device) {
  return {to_device(rows.offsets, device), to_device(rows.indices, device), rows.columns, {}, {}, {}};
}

at::Tensor degrees_of(const std::vector<std::int64_t>& degrees, const at::Device& device) {
  return to_device(degrees, device).to(at::kFloat);
}

std::vector<std::int64_t> rows_of_entries(const Csr& matrix) {
  std::vector<std::int64_t> rows(matrix.indices.size());
  for (std::int64_t i = 0; i < matrix.rows(); ++i) {
    const auto row = static_cast<std::size_t>(i);
    std::fill(rows.begin() + matrix.offsets[row], rows.begin() + matrix.offsets[row + 1], i);
  }
  return rows;
}

}  // namespace

std::shared_ptr<const Gather> make_gather(const Csr& edges, const at::Device& device,
                                          const GatherWants& wants) {
  auto gather = std::make_shared<Gather>();
  gather->forward = to_device(edges, device);
  const at::Tensor rows = degrees_of(degrees(edges), device);
  gather->mean = at::where(rows > 0, rows.reciprocal(), at::zeros_like(rows));
  gather->row_norm = rows.clamp_min(1).rsqrt();
  gather->column_norm = degrees_of(column_degrees(edges), device).clamp_min(1).rsqrt();
  if (!wants.gradients && !wants.entries) return gather;
  const Transposed backward = transposed(edges);
  gather->backward = to_device(backward.rows, device);
  if (!wants.entries) return gather;
  Entries& entries = gather->entries;
  entries.row = to_device(rows_of_entries(edges), device);
  entries.column = gather->forward.indices.to(at::kLong);
  entries.transposed = to_device(backward.entry, device);
  const at::Tensor all = at::arange(edges.entries(), gather->forward.indices.options());
  entries.by_row = {gather->forward.offsets, all, edges.entries(), {}, {}, {}};
  entries.by_column = {
      gather->backward.offsets, entries.transposed.to(at::kInt), edges.entries(), {}, {}, {}};
  return gather;
}

std::shared_ptr<const SparseFeatures> make_sparse_features(const Csr& pattern,
                                                           const std::vector<float>& values,
                                                           const at::Device& device) {
  auto features = std::make_shared<SparseFeatures>();
  std::vector<float> low(static_cast<std::size_t>(pattern.rows())), range(low.size());
  for (std::size_t i = 0; i < low.size(); ++i) {
    const auto begin = values.begin() + pattern.offsets[i], end = values.begin() + pattern.offsets[i + 1];
    if (begin == end) continue;
    const auto [least, most] = std::minmax_element(begin, end);
    const bool has_zero = end - begin < pattern.columns;
    low[i] = has_zero ? std::min(0.0f, *least) : *least;
    range[i] = (has_zero ? std::max(0.0f, *most) : *most) - low[i];
  }
  const Transposed columns = transposed(pattern);
  features->rows = to_device(pattern, device);
  features->rows.weights = to_device(values, device);
  features->columns = to_device(columns.rows, device);
  features->entry = to_device(columns.entry, device);
  features->row_of = to_device(rows_of_entries(pattern), device);
  features->min = to_device(low, device);
  features->range = to_device(range, device);
  return features;
}

std::shared_ptr<const SparseFeatures> with_values(const SparseFeatures& features, const at::Tensor& values) {
  auto result = std::make_shared<SparseFeatures>(features);
  result->rows.weights = values;
  const at::Tensor lengths = features.rows.offsets.diff();
  const at::Tensor has_zero = lengths < features.rows.columns;
  const at::Tensor low = at::segment_reduce(values, "min", lengths, {}, {}, 0, /*unsafe=*/true);
  const at::Tensor most = at::segment_reduce(values, "max", lengths, {}, {}, 0, /*unsafe=*/true);
  result->min = at::where(has_zero, low.clamp_max(0), low);
  result->range = at::where(has_zero, most.clamp_min(0), most) - result->min;
  return result;
}

}  // namespace lowtide
