#include <cmath>

#include "bench/cuda_kernels/subjects.h"
#include "bench/gpu_checks.h"

namespace lowtide::cuda::bench {

namespace {

// The same in double precision, one sum a thread.
struct Reference {
  ConvGeometry g;
  const std::uint8_t *x, *e, *w_code;
  const float *w_scale, *w_offset;
  double x_scale, x_offset, e_scale, e_offset;
  double *y, *dx, *dw;

  __device__ double w(int o, int tap, int i) const {
    return static_cast<double>(w_code[(static_cast<long long>(o) * g.taps() + tap) * g.inputs + i]) *
               w_scale[o] +
           w_offset[o];
  }
  __device__ double x_at(int pixel, int i) const {
    return x[static_cast<long long>(pixel) * g.inputs + i] * x_scale + x_offset;
  }
  __device__ double e_at(int pixel, int o) const {
    return e[static_cast<long long>(pixel) * g.outputs + o] * e_scale + e_offset;
  }
  // The pixel of the input that a tap reads for a pixel of the output; below 0 where there is none.
  __device__ int input_of(int output, int tap) const {
    const int image = output / (g.rows * g.cols), at = output % (g.rows * g.cols);
    const int row = at / g.cols * g.stride_rows - g.pad_rows + tap / g.kernel_cols,
              col = at % g.cols * g.stride_cols - g.pad_cols + tap % g.kernel_cols;
    if (row < 0 || col < 0 || row >= g.height || col >= g.width) return -1;
    return (image * g.height + row) * g.width + col;
  }
  // And the other way.
  __device__ int output_of(int input, int tap) const {
    const int image = input / (g.height * g.width), at = input % (g.height * g.width);
    const int row = at / g.width + g.pad_rows - tap / g.kernel_cols,
              col = at % g.width + g.pad_cols - tap % g.kernel_cols;
    if (row < 0 || col < 0 || row % g.stride_rows != 0 || col % g.stride_cols != 0 ||
        row / g.stride_rows >= g.rows || col / g.stride_cols >= g.cols)
      return -1;
    return (image * g.rows + row / g.stride_rows) * g.cols + col / g.stride_cols;
  }
};
__device__ int thread_number() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

__global__ void reference_output(Reference r) {
  const int at = thread_number(), pixel = at / r.g.outputs, o = at % r.g.outputs;
  if (pixel >= r.g.output_pixels()) return;
  double sum = 0;
  for (int tap = 0; tap < r.g.taps(); ++tap) {
    const int from = r.input_of(pixel, tap);
    for (int i = 0; from >= 0 && i < r.g.inputs; ++i) sum += r.x_at(from, i) * r.w(o, tap, i);
  }
  r.y[at] = sum;
}
__global__ void reference_input_gradient(Reference r) {
  const int at = thread_number(), pixel = at / r.g.inputs, i = at % r.g.inputs;
  if (pixel >= r.g.input_pixels()) return;
  double sum = 0;
  for (int tap = 0; tap < r.g.taps(); ++tap) {
    const int from = r.output_of(pixel, tap);
    for (int o = 0; from >= 0 && o < r.g.outputs; ++o) sum += r.e_at(from, o) * r.w(o, tap, i);
  }
  r.dx[at] = sum;
}
__global__ void reference_weight_gradient(Reference r) {
  const int at = thread_number(), i = at % r.g.inputs, tap = at / r.g.inputs % r.g.taps(),
            o = at / r.g.inputs / r.g.taps();
  if (o >= r.g.outputs) return;
  double sum = 0;
  for (int pixel = 0; pixel < r.g.output_pixels(); ++pixel) {
    const int from = r.input_of(pixel, tap);
    if (from >= 0) sum += r.e_at(pixel, o) * r.x_at(from, i);
  }
  r.dw[at] = sum;
}

void compare(const std::string& name, const ConvGeometry& g, int bits, bool after_relu,
             Pattern pattern = Pattern::kDrawn) {
  const ConvCase c(g, bits, after_relu, pattern);
  const WeightLayer layer = c.layer();
  encode_weights(&layer, 1, nullptr);
  conv_output(c.output(true), nullptr);
  conv_weight_gradient(c.weight_gradient(), nullptr);
  // The normalisation before: any constants do.
  const auto n_in = static_cast<std::size_t>(g.inputs), n_out = static_cast<std::size_t>(g.outputs);
  const std::vector<float> producer_mean = normal(n_in, 0.1f), producer_factor = normal(n_in, 0.2f, 1),
                           producer_bias = normal(n_in, 0.3f);
  const auto put = [&](const Buffer<float>& to, const std::vector<float>& from) {
    check(cudaMemcpy(to.get() + n_out, from.data(), from.size() * sizeof(float), cudaMemcpyHostToDevice),
          "copy");
  };
  put(c.mean, producer_mean);
  put(c.factor, producer_factor);
  put(c.bias, producer_bias);
  put(c.inverse, producer_factor);
  conv_input_gradient(c.input_gradient(true, true), nullptr);
  check(cudaDeviceSynchronize(), name.c_str());

  const auto code = c.w_code.host();
  const auto scale = c.w_scale.host(), offset = c.w_offset.host();
  const int length = g.taps() * g.inputs;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(length);
    const double w = static_cast<double>(code[i]) * scale[row] + offset[row];
    if (std::abs(w - c.w_host[i]) > 0.51 * scale[row]) report(name + " weight code", 1, 0);
  }
  const Buffer<double> y_sums(c.e_host.size()), dx_sums(c.x_host.size()), dw_sums(code.size());
  const Reference reference{
      g,          c.x.get(), c.e.get(),  c.w_code.get(), c.w_scale.get(), c.w_offset.get(), c.x_scale,
      c.x_offset, c.e_scale, c.e_offset, y_sums.get(),   dx_sums.get(),   dw_sums.get()};
  const auto blocks = [](std::size_t n) { return static_cast<unsigned>((n + 127) / 128); };
  reference_output<<<blocks(c.e_host.size()), 128>>>(reference);
  reference_input_gradient<<<blocks(c.x_host.size()), 128>>>(reference);
  reference_weight_gradient<<<blocks(code.size()), 128>>>(reference);
  const std::vector<double> y = y_sums.host(), dw = dw_sums.host();
  std::vector<double> dx = dx_sums.host();
  report(name + " output", distance(c.y.host(), y), 1e-6);
  report(name + " weight gradient", distance(c.dw.host(), dw), 1e-7);
  std::vector<double> dgamma(n_in), dbeta(n_in);
  for (std::size_t i = 0; i < dx.size(); ++i) {
    const std::size_t ch = i % n_in;
    dx[i] += c.other_host[i];
    const float z = (c.producer_host[i] - producer_mean[ch]) * producer_factor[ch] + producer_bias[ch];
    if (!(z > 0)) dx[i] = 0;
    dbeta[ch] += dx[i];
    dgamma[ch] += dx[i] * (c.producer_host[i] - producer_mean[ch]) * producer_factor[ch];
  }
  report(name + " input gradient", distance(c.dx.host(), dx), 2e-6);
  auto gamma = c.dgamma.host(), beta = c.dbeta.host();
  gamma.resize(n_in);
  beta.resize(n_in);
  report(name + " norm weight gradient", distance(gamma, dgamma), 5e-6);
  report(name + " norm bias gradient", distance(beta, dbeta), 5e-6);
  const auto got = c.y.host();
  std::vector<double> mean(n_out), inverse(n_out);
  const double n = g.output_pixels();
  for (std::size_t i = 0; i < got.size(); ++i) mean[i % n_out] += got[i] / n;
  std::vector<double> variance(n_out);
  for (std::size_t i = 0; i < got.size(); ++i)
    variance[i % n_out] += std::pow(got[i] - mean[i % n_out], 2) / n;
  for (std::size_t i = 0; i < n_out; ++i) inverse[i] = 1 / std::sqrt(variance[i] + 1e-5);
  auto got_mean = c.mean.host(), got_inverse = c.inverse.host();
  got_mean.resize(n_out);
  got_inverse.resize(n_out);
  report(name + " mean", distance(got_mean, mean), 1e-6);
  report(name + " deviation", distance(got_inverse, inverse), 2e-6);
  double low = 1e30, high = -1e30;
  const auto factor = c.factor.host(), bias = c.bias.host();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float z = std::max(0.0f, (got[i] - got_mean[i % n_out]) * factor[i % n_out] + bias[i % n_out]);
    low = std::min<double>(low, z);
    high = std::max<double>(high, z);
  }
  report(name + " range", std::abs(c.min.host()[0] - low) + std::abs(c.range.host()[0] - (high - low)), 1e-6);
  if (stays_resident(g, true)) compare_resident(name, c, dx, dgamma, dbeta);
}

void check_wide(const std::string& tag, int bits, bool after_relu) {
  compare(tag + "64>64 3x3 56x56", geometry(2, 56, 64, 64, 3, 1, 1), bits, after_relu);
  compare(tag + "128>64 3x3 28x28", geometry(3, 28, 128, 64, 3, 1, 1), bits, after_relu);
  compare(tag + "64>192 3x3 14x14", geometry(5, 14, 64, 192, 3, 1, 1), bits, after_relu);
  compare(tag + "512>512 3x3 7x7", geometry(7, 7, 512, 512, 3, 1, 1), bits, after_relu);
  compare(tag + "64>128 3x3/2", geometry(3, 28, 64, 128, 3, 2, 1), bits, after_relu);
  compare(tag + "64>128 1x1/2", geometry(3, 28, 64, 128, 1, 2, 0), bits, after_relu);
  compare(tag + "256>64 1x1", geometry(3, 14, 256, 64, 1, 1, 0), bits, after_relu);
  compare(tag + "64>256 1x1", geometry(3, 14, 64, 256, 1, 1, 0), bits, after_relu);
  compare(tag + "192>144 1x1", geometry(3, 13, 192, 144, 1, 1, 0), bits, after_relu);
  compare(tag + "48>96 3x3", geometry(3, 9, 48, 96, 3, 1, 1), bits, after_relu);         // gathered
  compare(tag + "64>64 3x3 17x17", geometry(2, 17, 64, 64, 3, 1, 1), bits, after_relu);  // likewise
}

}  // namespace

void check_convs() {
  for (const auto& [what, pattern] :
       {std::pair("greatest codes", Pattern::kTops), std::pair("alternating codes", Pattern::kAlternating)})
    compare(std::string("512>512 3x3 7x7 ") + what, geometry(7, 7, 512, 512, 3, 1, 1), 8, true, pattern);
  for (const int bits : {8, 3}) {
    for (const bool after_relu : {true, false}) {
      const std::string tag = std::to_string(bits) + (after_relu ? "r " : "  ");
      check_wide(tag, bits, after_relu);
      compare(tag + "16>16 3x3", geometry(8, 12, 16, 16, 3, 1, 1), bits, after_relu);
      compare(tag + "16>16 3x3 many", geometry(64, 32, 16, 16, 3, 1, 1), bits, after_relu);
      compare(tag + "64>64 3x3", geometry(5, 8, 64, 64, 3, 1, 1), bits, after_relu);
      compare(tag + "32>32 3x3", geometry(7, 16, 32, 32, 3, 1, 1), bits, after_relu);
      compare(tag + "16>16 3x3 8x8", geometry(9, 8, 16, 16, 3, 1, 1), bits, after_relu);
      compare(tag + "64>64 3x3 4x4", geometry(3, 4, 64, 64, 3, 1, 1), bits, after_relu);
      compare(tag + "16>32 3x3/2", geometry(6, 11, 16, 32, 3, 2, 1), bits, after_relu);
      compare(tag + "3>16 3x3", geometry(8, 12, 3, 16, 3, 1, 1), bits, after_relu);
      compare(tag + "3>8 7x7/2", geometry(4, 15, 3, 8, 7, 2, 3), bits, after_relu);
      compare(tag + "24>72 1x1", geometry(6, 9, 24, 72, 1, 1, 0), bits, after_relu);
      compare(tag + "12>19 3x3", geometry(3, 7, 12, 19, 3, 1, 1), bits, after_relu);
      compare(tag + "5>7 1x1 one pixel", geometry(9, 1, 5, 7, 1, 1, 0), bits, after_relu);
      compare(tag + "7>7 3x3 one pixel", geometry(9, 1, 7, 7, 3, 1, 1), bits, after_relu);
      compare(tag + "256>80 1x1", geometry(3, 7, 256, 80, 1, 1, 0), bits, after_relu);
      compare(tag + "272>64 1x1", geometry(2, 9, 272, 64, 1, 1, 0), bits, after_relu);
      compare(tag + "24>144 1x1", geometry(5, 8, 24, 144, 1, 1, 0), bits, after_relu);
      compare(tag + "32>64 3x3/2", geometry(5, 16, 32, 64, 3, 2, 1), bits, after_relu);
      compare(tag + "32>64 1x1/2", geometry(5, 16, 32, 64, 1, 2, 0), bits, after_relu);
      compare(tag + "128>64 3x3", geometry(3, 14, 128, 64, 3, 1, 1), bits, after_relu);
      compare(tag + "16>16 3x3/3", geometry(3, 10, 16, 16, 3, 3, 1), bits, after_relu);
    }
  }
}

}  // namespace lowtide::cuda::bench
