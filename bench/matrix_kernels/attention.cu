#include <cmath>

#include "bench/gpu_checks.h"
#include "bench/matrix_kernels/drawn.h"
#include "bench/matrix_kernels/noise.cuh"
#include "bench/matrix_kernels/subjects.h"
#include "lowtide/nn/attention_kernels.h"
#include "lowtide/nn/row_kernels.h"

namespace lowtide::cuda::bench {

namespace {

// A thread a row.
__global__ void plain_attention(AttendGradientArguments g, NoiseCounter counter, double* weights,
                                double* ds) {
  const AttendArguments& a = g.of;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= a.items * a.heads * a.rows) return;
  const float* mask = a.mask + row / (a.heads * a.rows) * a.mask_item + row % a.rows * a.mask_row;
  const std::int64_t first = row * a.length;
  const auto drop = [&](int k) {
    return a.dropout.scale == 0 ? 1.0 : static_cast<double>(factor_at(first + k, counter));
  };
  const auto score = [&](int k) {
    return static_cast<double>(a.scores[first + k]) * static_cast<double>(a.factor) +
           static_cast<double>(mask[k]);
  };
  double most = -INFINITY, sum = 0, products = 0;
  for (int k = 0; k < a.length; ++k) most = fmax(most, score(k));
  for (int k = 0; k < a.length; ++k) sum += exp(score(k) - most);
  for (int k = 0; k < a.length; ++k) {
    const double p = exp(score(k) - most) / sum;
    weights[first + k] = p * drop(k);
    products += p * drop(k) * static_cast<double>(g.gradient[first + k]);
  }
  for (int k = 0; k < a.length; ++k) {
    const double p = exp(score(k) - most) / sum;
    ds[first + k] =
        p * (drop(k) * static_cast<double>(g.gradient[first + k]) - products) * static_cast<double>(a.factor);
  }
}

void check_attention(int items, int heads, int length, float dropout) {
  const std::int64_t rows = static_cast<std::int64_t>(items) * heads * length;
  const auto n = static_cast<std::size_t>(rows * length);
  const auto scores = floats(n, 3), gradient = floats(n);
  std::vector<float> masked(static_cast<std::size_t>(items * length));
  for (std::size_t i = 0; i < masked.size(); ++i)
    masked[i] = i % static_cast<std::size_t>(length) > 60 && i % 3 == 0 ? -INFINITY : 0;
  const Buffer<float> mask(masked);
  Buffer<float> p(n), weights(n), min(static_cast<std::size_t>(rows)), range(static_cast<std::size_t>(rows)),
      result(n);
  AttendArguments a;
  a.scores = *scores;
  a.mask = mask;
  a.mask_item = length;
  a.factor = 0.125f;
  a.items = items;
  a.heads = heads;
  a.rows = length;
  a.length = length;
  a.dropout = {dropout, kCounter, nullptr};
  a.p = p;
  a.weights = dropout == 0 ? p : weights;
  a.min = min;
  a.range = range;
  attend_on_gpu(a, stream);
  const AttendGradientArguments g{a, p, *gradient, result};
  attend_gradient_on_gpu(g, stream);
  Buffer<double> plain(n), plain_gradient(n);
  plain_attention<<<blocks_of(static_cast<std::size_t>(rows)), 256>>>(g, kCounter, plain, plain_gradient);
  const std::string shape = std::to_string(length) + " positions" + (dropout == 0 ? "" : ", dropout");
  const std::vector<float> y = (dropout == 0 ? p : weights).host(), low = min.host(), wide = range.host();
  report("attention's weights, " + shape, distance(y, plain.host()), 1e-6);
  report("attention's gradient, " + shape, distance(result.host(), plain_gradient.host()), 2e-6);
  double wrong = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto [least, most] = std::minmax_element(y.begin() + row * length, y.begin() + (row + 1) * length);
    wrong +=
        low[static_cast<std::size_t>(row)] != *least || wide[static_cast<std::size_t>(row)] != *most - *least;
  }
  report("attention's ranges, " + shape, wrong, 0);
}

void check_heads(int items, int length, int heads, int units, bool transposed) {
  const auto n = static_cast<std::size_t>(items * length * heads * units);
  const auto x = floats(n);
  const int rows = transposed ? units : length, columns = transposed ? length : units;
  const auto ranges = static_cast<std::size_t>(items * heads * rows);
  Buffer<std::uint8_t> code(n);
  Buffer<float> scale(ranges), min(ranges);
  encode_heads_on_gpu({.x = *x,
                       .items = items,
                       .length = length,
                       .heads = heads,
                       .units = units,
                       .transposed = transposed,
                       .bits = 8,
                       .code = code,
                       .scale = scale,
                       .min = min},
                      stream);
  const std::vector<float> values = x->host(), scales = scale.host(), low = min.host();
  const std::vector<std::uint8_t> c = code.host();
  double wrong = 0;
  for (int matrix = 0; matrix < items * heads; ++matrix) {
    for (int row = 0; row < rows; ++row) {
      const auto value = [&](int column) {
        const int position = transposed ? column : row, unit = transposed ? row : column;
        return values[static_cast<std::size_t>(
            ((matrix / heads * length + position) * heads + matrix % heads) * units + unit)];
      };
      float least = INFINITY, most = -INFINITY;
      for (int k = 0; k < columns; ++k) {
        least = std::min(least, value(k));
        most = std::max(most, value(k));
      }
      const auto at = static_cast<std::size_t>(matrix * rows + row);
      const float s = scale_of(most - least, 255);
      wrong += s != scales[at] || least != low[at];
      for (int k = 0; k < columns; ++k)
        wrong += c[at * static_cast<std::size_t>(columns) + static_cast<std::size_t>(k)] !=
                 static_cast<int>(std::nearbyint(std::min((value(k) - least) / s, 255.0f)));
    }
  }
  report("codes by head, " + std::to_string(length) + " x " + std::to_string(units) +
             (transposed ? ", transposed" : ""),
         wrong, 0);
}

}  // namespace

void check_attention() {
  for (const int length : {128, 64, 200, 37, 700}) {
    check_attention(2, 3, length, 0);
    check_attention(2, 3, length, kKeptScale);
  }
  for (const bool transposed : {false, true}) {
    check_heads(3, 128, 2, 64, transposed);
    check_heads(2, 35, 3, 32, transposed);
    check_heads(2, 100, 2, 128, transposed);
  }
}

}  // namespace lowtide::cuda::bench
