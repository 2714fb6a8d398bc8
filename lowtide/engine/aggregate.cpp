#include "lowtide/engine/aggregate.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/base/fetch.h"
#include "lowtide/base/simd.h"

namespace lowtide {
namespace {

// y += factor · x for one row of features.
template <typename Element>
LOWTIDE_SIMD void add_scaled(const Element* x, float factor, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * static_cast<float>(x[i]);
}

LOWTIDE_SIMD void add_and_scale(float offset_sum, float factor, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = (y[i] + offset_sum) * factor;
}

const float* floats_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

// The features' rows, with a scale and an offset each, or for all, or none.
template <typename Element>
struct FeatureRows {
  const Element* row(std::int64_t j) const { return values + j * width; }
  float scale_at(std::int64_t j) const { return scale == nullptr ? 1.0f : scale[j * step]; }
  float offset_at(std::int64_t j) const { return offset == nullptr ? 0.0f : offset[j * step]; }

  const Element* values;
  std::int64_t width;
  const float *scale, *offset;
  std::int64_t step;  // 0: one scale for all rows
};

template <typename Element>
class RowSums {
 public:
  RowSums(const SparseRows& matrix, const FeatureRows<Element>& x, std::int64_t heads)
      : x_(x),
        heads_(heads),
        offsets_(matrix.offsets.data_ptr<std::int64_t>()),
        indices_(matrix.indices.data_ptr<std::int32_t>()),
        weights_(floats_of(matrix.weights)),
        row_factor_(floats_of(matrix.row_factor)),
        column_factor_(floats_of(matrix.column_factor)) {}

  // One row of the result, which starts at zero.
  void sum(std::int64_t i, float* y) const {
    const std::int64_t head_width = x_.width / heads_;
    for (std::int64_t head = 0; head < heads_; ++head) {
      float offset_sum = 0;
      for (std::int64_t e = offsets_[i]; e < offsets_[i + 1]; ++e) {
        const std::int64_t j = indices_[e];
        // Rows lie anywhere in memory: one that is asked for while the one before it is added is there when it is needed.
        if (e + 1 < offsets_[i + 1])
          fetch<Fetch::kToRead>(x_.row(indices_[e + 1]) + head * head_width, head_width);
        const float weight = weight_of(e, head, j);
        add_scaled(x_.row(j) + head * head_width, weight * x_.scale_at(j), head_width, y + head * head_width);
        offset_sum += weight * x_.offset_at(j);
      }
      const float factor = row_factor_ == nullptr ? 1.0f : row_factor_[i];
      if (factor != 1.0f || offset_sum != 0.0f)
        add_and_scale(offset_sum, factor, head_width, y + head * head_width);
    }
  }

 private:
  float weight_of(std::int64_t e, std::int64_t head, std::int64_t j) const {
    const float own = weights_ == nullptr ? 1.0f : weights_[e * heads_ + head];
    return column_factor_ == nullptr ? own : own * column_factor_[j];
  }

  const FeatureRows<Element>& x_;
  std::int64_t heads_;
  const std::int64_t* offsets_;
  const std::int32_t* indices_;
  const float *weights_, *row_factor_, *column_factor_;
};

template <typename Element>
at::Tensor sums_on_cpu(const SparseRows& matrix, const Quantized& features, std::int64_t heads) {
  const std::int64_t width = features.code.size(1);
  const FeatureRows<Element> x{features.code.data_ptr<Element>(), width, floats_of(features.scale),
                               floats_of(features.offset),
                               features.scale.defined() && features.scale.numel() > 1 ? 1 : 0};
  const RowSums<Element> rows(matrix, x, heads);
  at::Tensor y = at::zeros({matrix.rows(), width}, features.code.options().dtype(at::kFloat));
  float* out = y.data_ptr<float>();
  // Rows differ in their number of entries by orders of magnitude, so the work is cut by entries, and one for the row
  // itself: row i begins at offsets[i] + i. Some 16,000 additions are worth waking a thread.
  const std::int64_t* offsets = matrix.offsets.data_ptr<std::int64_t>();
  const auto first_row = [&](std::int64_t work) {
    std::int64_t first = 0, last = matrix.rows();
    while (first < last) {
      const std::int64_t middle = first + (last - first) / 2;
      if (offsets[middle] + middle < work) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first;
  };
  const std::int64_t grain = std::max<std::int64_t>(1, 16'000 / std::max<std::int64_t>(1, width));
  at::parallel_for(0, matrix.rows() + matrix.indices.numel(), grain,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = first_row(begin); i < matrix.rows() && offsets[i] + i < end; ++i) {
                       rows.sum(i, out + i * width);
                     }
                   });
  return y;
}

// By the device library's sparse product, head by head.
at::Tensor sums_on_device(const SparseRows& matrix, at::Tensor x, std::int64_t heads) {
  if (matrix.column_factor.defined()) x = x * matrix.column_factor.unsqueeze(1);
  const at::Tensor indices = matrix.indices.to(at::kLong);
  const std::int64_t head_width = x.size(1) / heads;
  std::vector<at::Tensor> parts;
  for (std::int64_t head = 0; head < heads; ++head) {
    const at::Tensor weights = !matrix.weights.defined()
                                   ? at::ones({indices.numel()}, x.options())
                                   : matrix.weights.view({-1, heads}).select(1, head).contiguous();
    const at::Tensor csr =
        at::_sparse_csr_tensor_unsafe(matrix.offsets, indices, weights, {matrix.rows(), matrix.columns},
                                      x.options().layout(at::kSparseCsr));
    parts.push_back(at::mm(csr, x.narrow(1, head * head_width, head_width)));
  }
  at::Tensor y = heads == 1 ? parts[0] : at::cat(parts, 1);
  return matrix.row_factor.defined() ? y * matrix.row_factor.unsqueeze(1) : y;
}

}  // namespace

at::Tensor aggregate_rows(const SparseRows& matrix, const Quantized& features) {
  const std::int64_t heads =
      matrix.weights.defined() && matrix.weights.dim() == 2 ? matrix.weights.size(1) : 1;
  LOWTIDE_CHECK(features.code.size(0) == matrix.columns, "a row of features for each column");
  LOWTIDE_CHECK(features.code.size(1) % heads == 0, "as many features for each head");
  if (!features.code.device().is_cpu()) return sums_on_device(matrix, features.code, heads);
  return features.bits == 0 ? sums_on_cpu<float>(matrix, features, heads)
                            : sums_on_cpu<std::uint8_t>(matrix, features, heads);
}

}  // namespace lowtide
