#include <cmath>
#include <utility>

#include "bench/cuda_kernels/depthwise_case.h"
#include "bench/cuda_kernels/subjects.h"
#include "bench/gpu_checks.h"

namespace lowtide::cuda::bench {

namespace {

// Calls each(pixel of the output, pixel of the input, tap) for every product of pixels.
template <typename Each>
void for_each_tap(const ConvGeometry& g, const Each& each) {
  for (int n = 0; n < g.images; ++n)
    for (int r = 0; r < g.rows; ++r)
      for (int c = 0; c < g.cols; ++c)
        for (int i = 0; i < g.kernel_rows; ++i)
          for (int j = 0; j < g.kernel_cols; ++j) {
            const int row = r * g.stride_rows - g.pad_rows + i, col = c * g.stride_cols - g.pad_cols + j;
            if (row < 0 || col < 0 || row >= g.height || col >= g.width) continue;
            each((n * g.rows + r) * g.cols + c, (n * g.height + row) * g.width + col, i * g.kernel_cols + j);
          }
}

void compare_depthwise(const std::string& name, const ConvGeometry& g, int bits, bool after_relu,
                       Pattern pattern) {
  const DepthwiseCase c(g, bits, after_relu, pattern);
  const WeightLayer layer = c.layer();
  encode_depthwise_weights(&layer, 1, nullptr);
  depthwise_output(c.output(true, 0), nullptr);
  depthwise_weight_gradient(c.weight_gradient(0), nullptr);
  depthwise_input_gradient(c.gradient(true, 0), nullptr);
  check(cudaDeviceSynchronize(), name.c_str());

  const auto w_code = c.w_code.host();
  const auto scale = c.w_scale.host(), offset = c.w_offset.host();
  std::vector<double> w(w_code.size()), y(c.outputs), dx(c.inputs), dw(w_code.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    w[i] = static_cast<double>(w_code[i]) * scale[i / 9] + offset[i / 9];
    if (!(std::abs(w[i] - c.w_host[i]) <= 0.51 * scale[i / 9])) report(name + " weight code", 1, 0);
  }
  for_each_tap(g, [&](int out, int in, int tap) {
    for (std::size_t i = 0; i < c.channels; ++i) {
      const std::size_t to = static_cast<std::size_t>(out) * c.channels + i,
                        at = i * 9 + static_cast<std::size_t>(tap),
                        from = static_cast<std::size_t>(in) * c.channels + i;
      const double value = static_cast<double>(c.x_host[from]) * c.x_scale + c.x_offset,
                   error = static_cast<double>(c.e_host[to]) * c.e_scale + c.e_offset;
      y[to] += value * w[at];
      dx[from] += error * w[at];
      dw[at] += error * value;
    }
  });
  report(name + " output", distance(c.y.host(), y), 1e-6);
  report(name + " weight gradient", distance(c.dw.host(), dw), 1e-7);

  std::vector<double> dgamma(c.channels), dbeta(c.channels);
  for (std::size_t i = 0; i < dx.size(); ++i) {
    const std::size_t ch = i % c.channels;
    const float distance = c.producer_host[i] - c.mean_host[ch];
    if (!(distance * c.factor_host[ch] + c.bias_host[ch] > 0)) dx[i] = 0;
    dbeta[ch] += dx[i];
    dgamma[ch] += dx[i] * distance * c.factor_host[ch];
  }
  report(name + " input gradient", distance(c.dx.host(), dx), 2e-6);
  const auto sums = c.sums.host();
  const auto part = [&](const std::vector<float>& of, std::size_t number) {
    const auto first = of.begin() + static_cast<std::ptrdiff_t>(number * c.channels);
    return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(c.channels));
  };
  report(name + " norm weight gradient", distance(part(sums, 0), dgamma), 5e-6);
  report(name + " norm bias gradient", distance(part(sums, 1), dbeta), 5e-6);

  const auto got = c.y.host(), norm = c.norm.host();
  const auto mean = part(norm, 0), factor = part(norm, 1), bias = part(norm, 2);
  std::vector<double> exact_mean(c.channels), variance(c.channels), inverse(c.channels);
  const double n = g.output_pixels();
  for (std::size_t i = 0; i < got.size(); ++i) exact_mean[i % c.channels] += got[i] / n;
  for (std::size_t i = 0; i < got.size(); ++i)
    variance[i % c.channels] += std::pow(got[i] - exact_mean[i % c.channels], 2) / n;
  for (std::size_t i = 0; i < c.channels; ++i) inverse[i] = 1 / std::sqrt(variance[i] + 1e-5);
  report(name + " mean", distance(mean, exact_mean), 1e-6);
  report(name + " deviation", distance(part(norm, 3), inverse), 2e-6);
  double low = 1e30, high = -1e30;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t ch = i % c.channels;
    const float z = std::max(0.0f, (got[i] - mean[ch]) * factor[ch] + bias[ch]);
    low = std::min<double>(low, z);
    high = std::max<double>(high, z);
  }
  report(name + " range", std::abs(c.min.host()[0] - low) + std::abs(c.range.host()[0] - (high - low)),
         1e-6 * (1 + high));

  const Buffer<float> with_statistics(got);
  depthwise_output(c.output(false, 0), nullptr);
  report(name + " output without statistics", differing(with_statistics, c.y), 0);
  std::vector<double> plain(c.inputs);
  for_each_tap(g, [&](int out, int in, int tap) {
    for (std::size_t i = 0; i < c.channels; ++i)
      plain[static_cast<std::size_t>(in) * c.channels + i] +=
          (static_cast<double>(c.e_host[static_cast<std::size_t>(out) * c.channels + i]) * c.e_scale +
           c.e_offset) *
          w[i * 9 + static_cast<std::size_t>(tap)];
  });
  depthwise_input_gradient(c.gradient(false, 0), nullptr);
  check(cudaDeviceSynchronize(), name.c_str());
  report(name + " plain input gradient", distance(c.dx.host(), plain), 2e-6);
}

}  // namespace

void check_depthwise() {
  for (const int bits : {8, 3}) {
    for (const bool after_relu : {true, false}) {
      const std::string tag = std::to_string(bits) + (after_relu ? "r " : "  ");
      const auto compare = [&](const std::string& name, const ConvGeometry& g,
                               Pattern pattern = Pattern::kDrawn) {
        compare_depthwise(tag + "depthwise " + name, g, bits, after_relu, pattern);
      };
      compare("32 16x16", depthwise_geometry(9, 16, 16, 32, 1, 1));
      compare("144 32x32", depthwise_geometry(3, 32, 32, 144, 1, 1));
      compare("144 32x32/2", depthwise_geometry(3, 32, 32, 144, 2, 1));
      compare("384 8x8", depthwise_geometry(5, 8, 8, 384, 1, 1));
      compare("576 8x8/2", depthwise_geometry(5, 8, 8, 576, 2, 1));
      compare("960 4x4", depthwise_geometry(7, 4, 4, 960, 1, 1));
      compare("48 9x7", depthwise_geometry(6, 9, 7, 48, 1, 1));
      compare("48 9x7/2", depthwise_geometry(6, 9, 7, 48, 2, 1));
      compare("16 13x5", depthwise_geometry(2, 13, 5, 16, 1, 1));
      compare("80 one pixel", depthwise_geometry(5, 1, 1, 80, 1, 1));
      compare("80 one pixel/2", depthwise_geometry(5, 1, 1, 80, 2, 1));
      compare("96 2x3/2", depthwise_geometry(4, 2, 3, 96, 2, 1));
      compare("112 6x10 without padding", depthwise_geometry(2, 6, 10, 112, 1, 0));
      compare("112 7x10/2 without padding", depthwise_geometry(2, 7, 10, 112, 2, 0));
      compare("32 6x5 padded by 2", depthwise_geometry(2, 6, 5, 32, 1, 2));
      compare("32 6x5/2 padded by 2", depthwise_geometry(2, 6, 5, 32, 2, 2));
      compare("1072 5x5", depthwise_geometry(2, 5, 5, 1072, 1, 1));
      compare("1152 56x3", depthwise_geometry(1, 56, 3, 1152, 1, 1));
      compare("2048 6x80/2", depthwise_geometry(1, 6, 80, 2048, 2, 1));
      // More tiles than blocks.
      compare("16 3x3 many", depthwise_geometry(4400, 3, 3, 16, 1, 1));
      compare("16 3x3/2 many", depthwise_geometry(4400, 3, 3, 16, 2, 1));
      compare("2048 5x5 many", depthwise_geometry(40, 5, 5, 2048, 1, 1));
      compare("2048 5x5/2 many", depthwise_geometry(40, 5, 5, 2048, 2, 1));
      compare("96 112x112", depthwise_geometry(1, 112, 112, 96, 1, 1));
      compare("96 112x112/2", depthwise_geometry(1, 112, 112, 96, 2, 1));
      for (const auto& [what, pattern] :
           {std::pair("least codes", Pattern::kZeros), std::pair("greatest codes", Pattern::kTops),
            std::pair("alternating codes", Pattern::kAlternating)}) {
        compare(std::string("48 17x17 ") + what, depthwise_geometry(40, 17, 17, 48, 1, 1), pattern);
        compare(std::string("48 17x17/2 ") + what, depthwise_geometry(40, 17, 17, 48, 2, 1), pattern);
      }
    }
  }
}

}  // namespace lowtide::cuda::bench
