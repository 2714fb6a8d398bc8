#include "lowtide/data/resample.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lowtide {
namespace {

// The input pixels that make up one output pixel, along one direction.
struct Taps {
  int first;
  std::vector<float> weights;
};

// Pixel i covers [i, i + 1): the centre of output pixel i lies at (i + 0.5) · source / target in the source.
std::vector<Taps> make_taps(int source, int target, int window_start, int window_size) {
  const double step = static_cast<double>(source) / target;
  const double radius = std::max(step, 1.0);
  std::vector<Taps> result;
  result.reserve(static_cast<std::size_t>(window_size));
  for (int i = window_start; i < window_start + window_size; ++i) {
    const double centre = (i + 0.5) * step;
    const int first = std::max(0, static_cast<int>(std::floor(centre - radius + 0.5)));
    const int end = std::min(source, static_cast<int>(std::floor(centre + radius + 0.5)));
    Taps taps{first, {}};
    double sum = 0;
    for (int j = first; j < end; ++j) {
      const double weight = std::max(0.0, 1.0 - std::abs(j + 0.5 - centre) / radius);
      taps.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : taps.weights) weight = static_cast<float>(weight / sum);
    result.push_back(std::move(taps));
  }
  return result;
}

// The weighted sum of whole rows: the inner loop runs over neighbouring bytes and vectorises.
void blend_rows(const Image& image, const Taps& rows, int top, std::size_t offset, std::size_t count,
                float* out) {
  std::fill_n(out, count, 0.0f);
  for (std::size_t k = 0; k < rows.weights.size(); ++k) {
    const std::uint8_t* row = image.row(top + rows.first + static_cast<int>(k)) + offset;
    const float weight = rows.weights[k];
    for (std::size_t i = 0; i < count; ++i) out[i] += weight * static_cast<float>(row[i]);
  }
}

template <int kChannels>
void blend_columns(const float* row, const std::vector<Taps>& columns, int origin, float* out) {
  for (const Taps& taps : columns) {
    const float* pixel = row + std::ptrdiff_t{taps.first - origin} * kChannels;
    float sum[kChannels] = {};
    for (const float weight : taps.weights) {
      for (int c = 0; c < kChannels; ++c) sum[c] += weight * pixel[c];
      pixel += kChannels;
    }
    for (int c = 0; c < kChannels; ++c) *out++ = sum[c];
  }
}

}  // namespace

void resample(const Image& image, const Resampling& plan, float* out) {
  const Box& window = plan.window;
  const auto rows = make_taps(plan.source.height, plan.height, window.top, window.height);
  auto columns = make_taps(plan.source.width, plan.width, window.left, window.width);
  const int first = columns.front().first;
  const int end = columns.back().first + static_cast<int>(columns.back().weights.size());
  if (plan.flip) std::reverse(columns.begin(), columns.end());
  // Rows first: this pass is the fast one, and leaves only as many rows as there are in the output to the
  // slow one.
  const auto channels = static_cast<std::size_t>(image.channels);
  std::vector<float> row(static_cast<std::size_t>(end - first) * channels);
  const std::size_t offset = static_cast<std::size_t>(plan.source.left + first) * channels;
  for (const Taps& taps : rows) {
    blend_rows(image, taps, plan.source.top, offset, row.size(), row.data());
    channels == 3 ? blend_columns<3>(row.data(), columns, first, out)
                  : blend_columns<1>(row.data(), columns, first, out);
    out += static_cast<std::size_t>(window.width) * channels;
  }
}

}  // namespace lowtide
