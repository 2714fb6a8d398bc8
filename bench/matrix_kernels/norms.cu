#include <cmath>

#include "bench/gpu_checks.h"
#include "bench/matrix_kernels/drawn.h"
#include "bench/matrix_kernels/noise.cuh"
#include "bench/matrix_kernels/subjects.h"
#include "lowtide/nn/layer_norm_kernels.h"
#include "lowtide/nn/tensor_norm_kernels.h"

namespace lowtide::cuda::bench {

namespace {

void check_residual_norm(int rows, int columns, float dropout) {
  const auto n = static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  const auto x = floats(n, 1, 0.3f), added = floats(n), gradient = floats(n),
             weight = floats(static_cast<std::size_t>(columns), 0.2f, 1),
             bias = floats(static_cast<std::size_t>(columns));
  Buffer<float> sum(n), y(n), mean(static_cast<std::size_t>(rows)), inverse(static_cast<std::size_t>(rows)),
      dx(n), dadded(n), partial(static_cast<std::size_t>(kNormParts * 2 * columns)),
      both(static_cast<std::size_t>(2 * columns)), factors(n);
  const DropoutNoise noise{dropout, kCounter, nullptr};
  residual_norm_on_gpu({.x = *x,
                        .added = *added,
                        .dropout = noise,
                        .weight = *weight,
                        .bias = *bias,
                        .epsilon = 1e-5,
                        .rows = rows,
                        .columns = columns,
                        .sum = sum,
                        .y = y,
                        .mean = mean,
                        .inverse = inverse},
                       stream);
  residual_norm_gradient_on_gpu({.sum = sum,
                                 .gradient = *gradient,
                                 .weight = *weight,
                                 .mean = mean,
                                 .inverse = inverse,
                                 .dropout = noise,
                                 .rows = rows,
                                 .columns = columns,
                                 .dx = dx,
                                 .dadded = dropout == 0 ? nullptr : dadded.operator float*(),
                                 .partial = partial,
                                 .weight_and_bias = both},
                                stream);
  const Buffer<float> ones(std::vector<float>(n, 1.0f));
  drop(ones, n, factors);
  const auto xs = x->host(), as = added->host(), gs = gradient->host(), ws = weight->host(),
             bs = bias->host(), fs = factors.host();
  std::vector<double> ys(n), dxs(n), das(n), sums(static_cast<std::size_t>(2 * columns));
  for (int r = 0; r < rows; ++r) {
    const auto at = [&](int c) {
      return static_cast<std::size_t>(r) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(c);
    };
    std::vector<double> s(static_cast<std::size_t>(columns));
    double m = 0, v = 0, plain = 0, product = 0;
    for (int c = 0; c < columns; ++c) {
      const double f = dropout == 0 ? 1.0 : static_cast<double>(fs[at(c)]);
      s[static_cast<std::size_t>(c)] = static_cast<double>(xs[at(c)]) + f * static_cast<double>(as[at(c)]);
      m += s[static_cast<std::size_t>(c)] / columns;
    }
    for (const double t : s) v += (t - m) * (t - m) / columns;
    const double i = 1 / std::sqrt(v + 1e-5);
    for (int c = 0; c < columns; ++c) {
      const auto k = static_cast<std::size_t>(c);
      s[k] = (s[k] - m) * i;
      const double g = static_cast<double>(gs[at(c)]) * static_cast<double>(ws[k]);
      ys[at(c)] = s[k] * static_cast<double>(ws[k]) + static_cast<double>(bs[k]);
      sums[k] += static_cast<double>(gs[at(c)]) * s[k];
      sums[static_cast<std::size_t>(columns) + k] += static_cast<double>(gs[at(c)]);
      plain += g / columns;
      product += g * s[k] / columns;
    }
    for (int c = 0; c < columns; ++c) {
      const auto k = static_cast<std::size_t>(c);
      dxs[at(c)] = i * (static_cast<double>(gs[at(c)]) * static_cast<double>(ws[k]) - plain - s[k] * product);
      das[at(c)] = dxs[at(c)] * (dropout == 0 ? 1.0 : static_cast<double>(fs[at(c)]));
    }
  }
  const std::string shape =
      std::to_string(rows) + " x " + std::to_string(columns) + (dropout == 0 ? "" : ", dropout");
  report("norm of a residual, " + shape, distance(y.host(), ys), 2e-6);
  report("  its gradient", distance(dx.host(), dxs), 2e-6);
  if (dropout != 0) report("  its gradient at what was added", distance(dadded.host(), das), 2e-6);
  report("  its weight's and bias's", distance(both.host(), sums), 2e-6);
}

void check_tensor_norm(std::size_t n, float dropout) {
  const auto x = floats(n, 1, 0.3f), gradient = floats(n);
  Buffer<double> work(kTensorMeansWork);
  Buffer<float> mean(1), factor(1), means(2), y(n), dx(n), factors(n);
  const NormedTensor of{*x, static_cast<std::int64_t>(n), true, {dropout, kCounter, nullptr}};
  tensor_statistics_on_gpu({.of = of, .epsilon = 1e-5, .work = work, .mean = mean, .factor = factor}, stream);
  normalise_on_gpu({.of = of, .mean = mean, .factor = factor, .y = y}, stream);
  normalise_gradient_on_gpu({.of = of,
                             .gradient = *gradient,
                             .mean = mean,
                             .factor = factor,
                             .work = work,
                             .means = means,
                             .dx = dx},
                            stream);
  const Buffer<float> ones(std::vector<float>(n, 1.0f));
  drop(ones, n, factors);
  const auto xs = x->host(), gs = gradient->host(), fs = factors.host();
  double m = 0, v = 0, plain = 0, product = 0;
  const auto count = static_cast<double>(n);
  const auto relu = [&](std::size_t i) { return std::max(0.0, static_cast<double>(xs[i])); };
  const auto g = [&](std::size_t i) {
    return static_cast<double>(gs[i]) * (dropout == 0 ? 1.0 : static_cast<double>(fs[i]));
  };
  for (std::size_t i = 0; i < n; ++i) m += relu(i) / count;
  for (std::size_t i = 0; i < n; ++i) v += (relu(i) - m) * (relu(i) - m) / count;
  const double f = 1 / std::sqrt(v + 1e-5);
  for (std::size_t i = 0; i < n; ++i) {
    plain += g(i) / count;
    product += g(i) * (relu(i) - m) * f / count;
  }
  std::vector<double> ys(n), dxs(n);
  for (std::size_t i = 0; i < n; ++i) {
    ys[i] = (relu(i) - m) * f * (dropout == 0 ? 1.0 : static_cast<double>(fs[i]));
    dxs[i] = xs[i] > 0 ? f * (g(i) - plain - (relu(i) - m) * f * product) : 0;
  }
  report("norm of a tensor of " + std::to_string(n), distance(y.host(), ys), 2e-6);
  report("  its gradient", distance(dx.host(), dxs), 2e-6);
}

}  // namespace

void check_norms() {
  for (const int columns : {128, 768, 1024}) {
    check_residual_norm(300, columns, 0);
    check_residual_norm(515, columns, kKeptScale);
  }
  check_tensor_norm(1000003, 0);
  check_tensor_norm(700001, kKeptScale);
}

}  // namespace lowtide::cuda::bench
