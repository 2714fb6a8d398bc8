#include "lowtide/data/graph/node_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

void normalise(std::span<float> row) {
  double sum = 0;
  for (const float value : row) sum += std::abs(value);
  if (sum == 0) return;
  for (float& value : row) value = static_cast<float>(value / sum);
}

}  // namespace

void standardise(NodeFeatures& features) {
  if (features.is_sparse()) {
    throw UserError(
        fmt::format("features: {} sparse columns cannot be standardised, since they would not stay sparse; "
                    "normalise their rows instead",
                    features.columns));
  }
  const auto columns = static_cast<std::size_t>(features.columns);
  const std::size_t rows = features.dense.size() / columns;
  const auto nodes = static_cast<double>(rows);
  std::vector<double> mean(columns), deviation(columns);
  for (std::size_t i = 0; i < features.dense.size(); ++i) mean[i % columns] += features.dense[i];
  for (double& value : mean) value /= nodes;
  // In two passes: the difference of large squares would lose what matters.
  for (std::size_t i = 0; i < features.dense.size(); ++i) {
    const double distance = features.dense[i] - mean[i % columns];
    deviation[i % columns] += distance * distance;
  }
  for (double& value : deviation) value = value > 0 ? std::sqrt(value / nodes) : 1;
  for (std::size_t i = 0; i < features.dense.size(); ++i) {
    const std::size_t column = i % columns;
    features.dense[i] = static_cast<float>((features.dense[i] - mean[column]) / deviation[column]);
  }
}

void normalise_rows(NodeFeatures& features) {
  if (!features.is_sparse()) {
    const auto columns = static_cast<std::size_t>(features.columns);
    for (std::size_t i = 0; i < features.dense.size(); i += columns) {
      normalise(std::span(features.dense).subspan(i, columns));
    }
    return;
  }
  for (std::size_t i = 0; i + 1 < features.sparse.offsets.size(); ++i) {
    const auto begin = static_cast<std::size_t>(features.sparse.offsets[i]);
    const auto end = static_cast<std::size_t>(features.sparse.offsets[i + 1]);
    normalise(std::span(features.values).subspan(begin, end - begin));
  }
}

void gather_rows(const NodeFeatures& features, std::span<const std::int32_t> nodes, float* out) {
  const auto columns = static_cast<std::size_t>(features.columns);
  for (const std::int32_t node : nodes) {
    if (!features.is_sparse()) {
      std::copy_n(features.dense.data() + static_cast<std::size_t>(node) * columns, columns, out);
    } else {
      std::fill_n(out, columns, 0.0f);
      auto value = features.values.begin() + features.sparse.offsets[static_cast<std::size_t>(node)];
      for (const std::int32_t column : features.sparse.row(node)) out[column] += *value++;
    }
    out += columns;
  }
}

}  // namespace lowtide
