// The CUDA engine's kernels by themselves, without torch: each is compared with the same in double precision, then
// timed on the shapes of CIFAR's and ImageNet's networks, as nodes of a graph; with the argument `check` not timed, with
// `depthwise` only depthwise convolutions.
// `nvcc … bench/cuda_kernels.cu lowtide/engine/cuda/*.cu`.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "lowtide/engine/cuda/depthwise.h"
#include "lowtide/engine/cuda/kernels.h"

namespace {

using namespace lowtide;        // NOLINT
using namespace lowtide::cuda;  // NOLINT

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

template <typename T>
class Buffer {
 public:
  explicit Buffer(std::size_t n, int fill = 0x7f) : n_(n) {
    check(cudaMalloc(&p_, n * sizeof(T) + 64), "cudaMalloc");
    check(cudaMemset(p_, fill, n * sizeof(T)), "cudaMemset");  // poison: what is not written shows
  }
  explicit Buffer(const std::vector<T>& v) : Buffer(v.size()) {
    check(cudaMemcpy(p_, v.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(p_); }
  T* get() const { return p_; }
  std::vector<T> host() const {
    std::vector<T> v(n_);
    check(cudaMemcpy(v.data(), p_, n_ * sizeof(T), cudaMemcpyDeviceToHost), "copy");
    return v;
  }

 private:
  T* p_ = nullptr;
  std::size_t n_;
};

std::mt19937 generator(1);  // NOLINT

// Drawn numbers take their time: they come round again.
constexpr std::size_t kDrawn = 1'000'003;

std::vector<std::uint8_t> codes(std::size_t n, int top) {
  std::vector<std::uint8_t> v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] =
        i < kDrawn ? static_cast<std::uint8_t>(generator() % static_cast<unsigned>(top + 1)) : v[i - kDrawn];
  return v;
}

// Codes as extreme as can be, or drawn.
enum class Pattern { kDrawn, kZeros, kTops, kAlternating };
std::vector<std::uint8_t> codes_of(Pattern pattern, std::size_t n, int top, std::size_t period) {
  std::vector<std::uint8_t> v = codes(n, top);
  for (std::size_t i = 0; i < n && pattern != Pattern::kDrawn; ++i) {
    const bool high = pattern == Pattern::kTops || (pattern == Pattern::kAlternating && i / period % 2 == 0);
    v[i] = static_cast<std::uint8_t>(high ? top : 0);
  }
  return v;
}

std::vector<float> normal(std::size_t n, float scale = 1, float shift = 0) {
  std::normal_distribution<float> of(shift, scale);
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = i < kDrawn ? of(generator) : v[i - kDrawn];
  return v;
}

// One convolution with everything that it needs in device memory.
struct Case {
  ConvGeometry g;
  int top;
  float x_scale, x_offset, e_scale, e_offset;
  std::vector<std::uint8_t> x_host, e_host;
  std::vector<float> w_host, other_host, producer_host;
  Buffer<std::uint8_t> x, e;
  Buffer<float> w, sx, ox, se, oe;
  Buffer<std::uint8_t> w_code;
  Buffer<float> w_scale, w_offset;
  Buffer<std::uint8_t> forward;
  Buffer<int> prefix;
  Buffer<float> tap_value, limb_scale;
  Buffer<std::uint8_t> limbs;
  Buffer<int> limb_sums;
  Buffer<float> y, dx, dw, other, producer;
  Buffer<float> gamma, beta, running_mean, running_variance, mean, factor, bias, inverse, min, range;
  Buffer<float> gm, slope, dgamma, dbeta;
  Buffer<std::uint8_t> work, dwork, wwork, products;

  Case(const ConvGeometry& geometry, int bits, bool after_relu, Pattern pattern = Pattern::kDrawn)
      : g(geometry),
        top((1 << bits) - 1),
        x_scale(0.013f),
        x_offset(after_relu ? 0.0f : -1.3f),
        e_scale(1e-4f),
        e_offset(-0.0127f),
        x_host(codes_of(pattern, size(g.input_pixels(), g.inputs), top, static_cast<std::size_t>(g.inputs))),
        e_host(
            codes_of(pattern, size(g.output_pixels(), g.outputs), top, static_cast<std::size_t>(g.outputs))),
        w_host(normal(size(g.outputs, g.taps() * g.inputs), 0.05f, 0.01f)),
        other_host(normal(size(g.input_pixels(), g.inputs), 0.01f)),
        producer_host(normal(size(g.input_pixels(), g.inputs), 1.0f, 0.2f)),
        x(x_host),
        e(e_host),
        w(w_host),
        sx(std::vector<float>{x_scale}),
        ox(std::vector<float>{x_offset}),
        se(std::vector<float>{e_scale}),
        oe(std::vector<float>{e_offset}),
        w_code(w_host.size()),
        w_scale(static_cast<std::size_t>(g.outputs)),
        w_offset(static_cast<std::size_t>(g.outputs)),
        forward(packed_forward_bytes(g.outputs, g.taps(), g.inputs)),
        prefix(size((g.kernel_rows + 1) * (g.kernel_cols + 1), g.outputs)),
        tap_value(size(g.taps(), g.inputs)),
        limb_scale(1),
        limbs(packed_limb_bytes(g.outputs, g.taps(), g.inputs)),
        limb_sums(size(kLimbs, g.inputs), 0),
        y(size(g.output_pixels(), g.outputs)),
        dx(size(g.input_pixels(), g.inputs)),
        dw(w_host.size()),
        other(other_host),
        producer(producer_host),
        gamma(normal(static_cast<std::size_t>(g.outputs + g.inputs), 0.2f, 1)),
        beta(normal(static_cast<std::size_t>(g.outputs + g.inputs), 0.2f)),
        running_mean(static_cast<std::size_t>(g.outputs), 0),
        running_variance(static_cast<std::size_t>(g.outputs), 0),
        mean(static_cast<std::size_t>(g.outputs + g.inputs)),
        factor(static_cast<std::size_t>(g.outputs + g.inputs)),
        bias(static_cast<std::size_t>(g.outputs + g.inputs)),
        inverse(static_cast<std::size_t>(g.outputs + g.inputs)),
        min(8),
        range(8),
        gm(static_cast<std::size_t>(g.outputs + g.inputs)),
        slope(static_cast<std::size_t>(g.outputs + g.inputs)),
        dgamma(static_cast<std::size_t>(g.outputs + g.inputs)),
        dbeta(static_cast<std::size_t>(g.outputs + g.inputs)),
        work(statistics_bytes(g.outputs), 0),
        dwork(statistics_bytes(g.inputs), 0),
        wwork(weight_gradient_work_bytes(g), 0),
        products(weight_gradient_product_bytes(g)) {}

  static std::size_t size(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }
  int bits() const { return top == 255 ? 8 : top == 7 ? 3 : 4; }

  WeightLayer layer() const {
    WeightLayer l;
    l.weight = w.get();
    l.outputs = g.outputs;
    l.kernel_rows = g.kernel_rows;
    l.kernel_cols = g.kernel_cols;
    l.inputs = g.inputs;
    l.bits = {bits()};
    l.code = w_code.get();
    l.scale = w_scale.get();
    l.offset = w_offset.get();
    l.forward = reinterpret_cast<std::uint32_t*>(forward.get());
    l.tap_prefix = prefix.get();
    l.tap_value = tap_value.get();
    l.limbs = reinterpret_cast<std::uint32_t*>(limbs.get());
    l.limb_scale = limb_scale.get();
    if (may_stay(g.outputs, g.kernel_rows, g.kernel_cols, g.inputs)) l.limb_sums = limb_sums.get();
    return l;
  }
  Codes xs() const { return {x.get(), sx.get(), ox.get(), {bits()}}; }
  Codes es() const { return {e.get(), se.get(), oe.get(), {bits()}}; }
  NormConstants constants(int first) const {
    return {.mean = mean.get() + first,
            .factor = factor.get() + first,
            .bias = bias.get() + first,
            .inverse_deviation = inverse.get() + first,
            .min = min.get(),
            .range = range.get()};
  }
  OutputArguments output(bool statistics) const {
    OutputArguments a{g, xs(), layer(), y.get(), {}};
    if (statistics) {
      a.statistics.work = work.get();
      a.statistics.weight = gamma.get();
      a.statistics.bias = beta.get();
      a.statistics.running_mean = running_mean.get();
      a.statistics.running_variance = running_variance.get();
      a.statistics.momentum = 0.1;
      a.statistics.uses_batch = true;
      a.statistics.relu = true;
      a.statistics.out = constants(0);
    }
    return a;
  }
  InputGradientArguments input_gradient(bool sums, bool with_other) const {
    InputGradientArguments a;
    a.g = g;
    a.dy = es();
    a.w = layer();
    a.dx = dx.get();
    if (with_other) {
      a.other = other.get();
      a.other_rows = g.height;
      a.other_cols = g.width;
    }
    if (sums) {
      a.sums.work = dwork.get();
      a.sums.norm = constants(g.outputs);
      a.sums.relu = true;
      a.sums.uses_batch = true;
      a.sums.y = producer.get();
      a.sums.weight_gradient = dgamma.get();
      a.sums.bias_gradient = dbeta.get();
      a.sums.gradient_mean = gm.get();
      a.sums.slope = slope.get();
    }
    return a;
  }
  WeightGradientArguments weight_gradient() const {
    return {.g = g, .dy = es(), .x = xs(), .work = wwork.get(), .dw = dw.get(), .products = products.get()};
  }
};

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

double distance(const std::vector<float>& a, const std::vector<double>& b) {
  double largest = 0, off = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= off)) off = std::abs(a[i] - b[i]);
    largest = std::max(largest, std::abs(b[i]));
  }
  return off / (largest > 0 ? largest : 1);
}

bool failed = false;  // NOLINT
void report(const std::string& name, double off, double limit) {
  const bool bad = !(off <= limit);
  failed |= bad;
  std::printf("%-44s %.2e %s\n", name.c_str(), off, bad ? "FAILED" : "");
}

void compare_resident(const std::string& name, const Case& c, const std::vector<double>& dx,
                      const std::vector<double>& dgamma, const std::vector<double>& dbeta);

void compare(const std::string& name, const ConvGeometry& g, int bits, bool after_relu,
             Pattern pattern = Pattern::kDrawn) {
  const Case c(g, bits, after_relu, pattern);
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

template <typename T>
double differing(const Buffer<T>& a, const Buffer<T>& b) {
  const std::vector<T> x = a.host(), y = b.host();
  double count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) count += x[i] != y[i];
  return count;
}

// One convolution of images that stay, with the memory of its passes.
struct ResidentCase {
  const Case& c;
  std::int64_t n;
  Buffer<float> y, residual, z, scale, dx;
  Buffer<std::uint8_t> code, sum_code, error_code, positive;
  Buffer<std::uint8_t> work, sums, sum_extremes, error_extremes;  // for many calls
  std::size_t work_bytes;

  explicit ResidentCase(const Case& of, int calls = 1)
      : c(of),
        n(static_cast<std::int64_t>(c.g.output_pixels()) * c.g.outputs),
        y(count()),
        residual(normal(count())),
        z(count()),
        scale(4),
        dx(count()),
        code(count()),
        sum_code(count()),
        error_code(count()),
        positive(count() / 8),
        work(bytes() * static_cast<std::size_t>(calls), 0),
        sums(bytes() * static_cast<std::size_t>(calls), 0),
        sum_extremes(kExtremesBytes * static_cast<std::size_t>(calls), 0),
        error_extremes(kExtremesBytes * static_cast<std::size_t>(calls), 0),
        work_bytes(bytes()) {}

  std::size_t count() const { return static_cast<std::size_t>(n); }
  std::size_t bytes() const { return (statistics_bytes(c.g.outputs) + 255) / 256 * 256; }
  void clear(cudaStream_t stream, int calls) const {
    const auto all = static_cast<std::size_t>(calls);
    cudaMemsetAsync(work.get(), 0, work_bytes * all, stream);
    cudaMemsetAsync(sums.get(), 0, work_bytes * all, stream);
    cudaMemsetAsync(sum_extremes.get(), 0, kExtremesBytes * all, stream);
    cudaMemsetAsync(error_extremes.get(), 0, kExtremesBytes * all, stream);
  }
  OutputArguments output(int call) const {
    OutputArguments a = c.output(true);
    a.y = y.get();
    a.statistics.work = work.get() + work_bytes * static_cast<std::size_t>(call);
    return a;
  }
  NormEncodeArguments encode() const {
    return {.y = y.get(),
            .n = n,
            .channels = c.g.outputs,
            .norm = c.constants(0),
            .relu = true,
            .bits = {c.bits()},
            .code = code.get(),
            .scale = scale.get()};
  }
  NormAddArguments add(int call) const {
    return {.y = y.get(),
            .residual = residual.get(),
            .n = n,
            .channels = c.g.outputs,
            .norm = c.constants(0),
            .relu = true,
            .work = sum_extremes.get() + kExtremesBytes * static_cast<std::size_t>(call),
            .value = z.get(),
            .positive = positive.get(),
            .min = c.min.get() + 1,
            .range = c.range.get() + 1};
  }
  ResidentForwardArguments encoding(int call) const {
    ResidentForwardArguments a;
    a.output = output(call);
    a.encode = encode();
    return a;
  }
  ResidentForwardArguments adding(int call) const {
    ResidentForwardArguments a;
    a.output = output(call);
    a.add = add(call);
    a.reader.bits = {c.bits()};
    a.reader.code = sum_code.get();
    a.reader.scale = scale.get() + 1;
    return a;
  }
  ResidentBackwardArguments backward(int call, bool with_other, bool with_dx) const {
    ResidentBackwardArguments a;
    a.gradient = c.input_gradient(true, with_other);
    a.gradient.dx = with_dx ? dx.get() : nullptr;
    a.gradient.sums.work = sums.get() + work_bytes * static_cast<std::size_t>(call);
    NormGradientArguments& e = a.error;
    e.gradient = dx.get();
    e.n = n;
    e.channels = c.g.inputs;
    e.sums = a.gradient.sums;
    e.work = error_extremes.get() + kExtremesBytes * static_cast<std::size_t>(call);
    e.min = c.min.get() + 2;
    e.range = c.range.get() + 2;
    e.bits = {c.bits()};
    e.noisy = true;
    e.counter = {11, 22, 33, 44, 55};
    e.code = error_code.get();
    e.scale = scale.get() + 2;
    return a;
  }
};

// Images that stay against the same passes one by one: the same bits wherever both are given the same sums. `dx` is the input
// gradient in double precision, ReLU's mask applied.
void compare_resident(const std::string& name, const Case& c, const std::vector<double>& dx,
                      const std::vector<double>& dgamma, const std::vector<double>& dbeta) {
  const ResidentCase r(c);
  const std::vector<float> mean = c.mean.host(), factor = c.factor.host();
  const auto n_out = static_cast<std::size_t>(c.g.outputs);
  resident_forward(r.encoding(0), nullptr);
  check(cudaDeviceSynchronize(), name.c_str());
  report(name + " resident output", differing(r.y, c.y), 0);
  const std::vector<double> passes_mean(mean.begin(), mean.end()),
      passes_factor(factor.begin(), factor.end());
  report(name + " resident mean", distance(c.mean.host(), passes_mean), 1e-6);
  report(name + " resident factor", distance(c.factor.host(), passes_factor), 2e-6);
  const Buffer<std::uint8_t> code(r.count()), positive(r.count() / 8), extremes(kExtremesBytes, 0);
  const Buffer<float> scale(4), z(r.count()), ends(4);
  NormEncodeArguments encode = r.encode();
  encode.min = c.min.get();
  encode.range = c.range.get();
  encode.code = code.get();
  encode.scale = scale.get();
  norm_encode(encode, nullptr);
  report(name + " resident codes", differing(r.code, code), 0);

  r.clear(nullptr, 1);
  resident_forward(r.adding(0), nullptr);
  NormAddArguments add = r.add(0);
  add.work = extremes.get();
  add.value = z.get();
  add.positive = positive.get();
  add.min = ends.get();
  add.range = ends.get() + 1;
  norm_add(add, nullptr);
  report(name + " resident sum", differing(r.z, z), 0);
  report(name + " resident signs", differing(r.positive, positive), 0);
  report(name + " resident sum's range",
         std::abs(ends.host()[0] - c.min.host()[1]) + std::abs(ends.host()[1] - c.range.host()[1]), 0);
  const Buffer<float> zeros(n_out, 0), ones(std::vector<float>(n_out, 1.0f));
  encode.y = z.get();
  encode.norm.mean = encode.norm.bias = zeros.get();
  encode.norm.factor = ones.get();
  encode.relu = false;
  encode.min = ends.get();
  encode.range = ends.get() + 1;
  norm_encode(encode, nullptr);
  report(name + " resident sum's codes", differing(r.sum_code, code), 0);

  r.clear(nullptr, 1);
  const ResidentBackwardArguments backward = r.backward(0, true, true);
  resident_backward(backward, nullptr);
  check(cudaDeviceSynchronize(), name.c_str());
  report(name + " resident input gradient", distance(r.dx.host(), dx), 1e-6);
  auto gamma = c.dgamma.host(), beta = c.dbeta.host();
  gamma.resize(n_out);
  beta.resize(n_out);
  report(name + " resident norm weight gradient", distance(gamma, dgamma), 5e-6);
  report(name + " resident norm bias gradient", distance(beta, dbeta), 5e-6);
  NormGradientArguments error = backward.error;
  const Buffer<std::uint8_t> error_extremes(kExtremesBytes, 0);
  error.work = error_extremes.get();
  error.min = ends.get() + 2;
  error.range = ends.get() + 3;
  error.code = code.get();
  error.scale = scale.get() + 2;
  norm_gradient_range(error, nullptr);
  norm_gradient_encode(error, nullptr);
  report(name + " resident error's codes", differing(r.error_code, code), 0);
  report(name + " resident error's range",
         std::abs(ends.host()[2] - c.min.host()[2]) + std::abs(ends.host()[3] - c.range.host()[2]), 0);
}

ConvGeometry geometry(int images, int size, int in, int out, int kernel, int stride, int pad) {
  ConvGeometry g;
  g.images = images;
  g.height = g.width = size;
  g.inputs = in;
  g.outputs = out;
  g.kernel_rows = g.kernel_cols = kernel;
  g.stride_rows = g.stride_cols = stride;
  g.pad_rows = g.pad_cols = pad;
  g.rows = g.cols = (size + 2 * pad - kernel) / stride + 1;
  return g;
}

// Microseconds of one call, as one of many in a graph.
constexpr int kCalls = 50;
double time_of(const std::function<void(cudaStream_t, int)>& call,
               const std::function<void(cudaStream_t)>& before = nullptr) {
  constexpr int kReplays = 20;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamCreate(&stream), "stream");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  if (before) before(stream);
  for (int i = 0; i < kCalls; ++i) call(stream, i);
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t from = nullptr, to = nullptr;
  cudaEventCreate(&from);
  cudaEventCreate(&to);
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(exec, stream);
  cudaEventRecord(from, stream);
  for (int i = 0; i < kReplays; ++i) cudaGraphLaunch(exec, stream);
  cudaEventRecord(to, stream);
  check(cudaStreamSynchronize(stream), "timing");
  float ms = 0;
  cudaEventElapsedTime(&ms, from, to);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return 1000.0 * ms / (kCalls * kReplays);
}

void time_layer(const std::string& name, const ConvGeometry& g) {
  const Case c(g, 8, true);
  const WeightLayer layer = c.layer();
  encode_weights(&layer, 1, nullptr);
  conv_output(c.output(true), nullptr);
  const std::int64_t n = static_cast<std::int64_t>(g.output_pixels()) * g.outputs;
  const Buffer<std::uint8_t> extremes(kExtremesBytes, 0), code(static_cast<std::size_t>(n)),
      positive(static_cast<std::size_t>(n / 8 + 1));
  const Buffer<float> residual(normal(static_cast<std::size_t>(n))), z(static_cast<std::size_t>(n)), scale(1);
  NormEncodeArguments encode{c.y.get(),     n,   g.outputs,  c.constants(0), true, c.min.get(),
                             c.range.get(), {8}, code.get(), scale.get()};
  NormAddArguments add{c.y.get(),       residual.get(),   n,
                       g.outputs,       c.constants(0),   true,
                       extremes.get(),  z.get(),          positive.get(),
                       c.min.get() + 1, c.range.get() + 1};
  NormGradientArguments gradient;
  gradient.gradient = residual.get();
  gradient.n = n;
  gradient.channels = g.outputs;
  gradient.sums = c.input_gradient(true, false).sums;
  gradient.sums.norm = c.constants(0);
  gradient.sums.y = c.y.get();
  gradient.work = extremes.get();
  gradient.min = c.min.get() + 2;
  gradient.range = c.range.get() + 2;
  gradient.bits = {8};
  gradient.noisy = true;
  gradient.code = code.get();
  gradient.scale = scale.get();
  const double us[] = {
      time_of([&](cudaStream_t s, int) { encode_weights(&layer, 1, s); }),
      time_of([&](cudaStream_t s, int) { conv_output(c.output(true), s); }),
      time_of([&](cudaStream_t s, int) { conv_output(c.output(false), s); }),
      time_of([&](cudaStream_t s, int) { norm_encode(encode, s); }),
      time_of([&](cudaStream_t s, int) { norm_add(add, s); }),
      time_of([&](cudaStream_t s, int) { norm_gradient_range(gradient, s); }),
      time_of([&](cudaStream_t s, int) { norm_gradient_encode(gradient, s); }),
      time_of([&](cudaStream_t s, int) { conv_input_gradient(c.input_gradient(true, true), s); }),
      time_of([&](cudaStream_t s, int) { conv_input_gradient(c.input_gradient(false, false), s); }),
      time_of([&](cudaStream_t s, int) { conv_weight_gradient(c.weight_gradient(), s); })};
  std::printf("%-22s", name.c_str());
  for (const double t : us) std::printf(" %8.2f", t);
  if (stays_resident(g, true)) {
    const ResidentCase r(c, kCalls);
    const auto clear = [&](cudaStream_t s) { r.clear(s, kCalls); };
    std::printf(
        " %8.2f %8.2f %8.2f %8.2f",
        time_of([&](cudaStream_t s, int i) { resident_forward(r.encoding(i), s); }, clear),
        time_of([&](cudaStream_t s, int i) { resident_forward(r.adding(i), s); }, clear),
        time_of([&](cudaStream_t s, int i) { resident_backward(r.backward(i, false, false), s); }, clear),
        time_of([&](cudaStream_t s, int i) { resident_backward(r.backward(i, true, true), s); }, clear));
  }
  std::printf("\n");
  check(cudaDeviceSynchronize(), name.c_str());
}

// ---- Depthwise convolutions ----------------------------------------------------------------------------------------

ConvGeometry depthwise_geometry(int images, int rows, int cols, int channels, int stride, int pad) {
  ConvGeometry g;
  g.images = images;
  g.height = rows;
  g.width = cols;
  g.inputs = g.outputs = channels;
  g.kernel_rows = g.kernel_cols = 3;
  g.stride_rows = g.stride_cols = stride;
  g.pad_rows = g.pad_cols = pad;
  g.rows = (rows + 2 * pad - 3) / stride + 1;
  g.cols = (cols + 2 * pad - 3) / stride + 1;
  g.depthwise = true;
  return g;
}

struct DepthwiseCase {
  ConvGeometry g;
  int bits, top;
  float x_scale, x_offset, e_scale, e_offset;
  std::size_t channels, inputs, outputs;  // numbers
  std::vector<std::uint8_t> x_host, e_host;
  std::vector<float> w_host, producer_host, mean_host, factor_host, bias_host;
  Buffer<std::uint8_t> x, e, w_code;
  Buffer<float> w, sx, ox, se, oe, w_scale, w_offset;
  Buffer<DepthwiseChannel> channel;
  Buffer<float> y, dx, dw, producer;
  Buffer<float> gamma, beta, running_mean, running_variance, norm, producer_norm, min, range;
  Buffer<float> sums;
  Buffer<std::uint8_t> work, dwork, wwork;  // for many calls
  std::size_t work_bytes, weight_bytes;

  DepthwiseCase(const ConvGeometry& geometry, int of_bits, bool after_relu, Pattern pattern, int calls = 1)
      : g(geometry),
        bits(of_bits),
        top((1 << bits) - 1),
        x_scale(0.013f),
        x_offset(after_relu ? 0.0f : -1.3f),
        e_scale(1e-4f),
        e_offset(-0.0127f),
        channels(static_cast<std::size_t>(g.inputs)),
        inputs(Case::size(g.input_pixels(), g.inputs)),
        outputs(Case::size(g.output_pixels(), g.outputs)),
        x_host(codes_of(pattern, inputs, top, channels)),
        e_host(codes_of(pattern, outputs, top, channels)),
        w_host(normal(channels * 9, 0.3f, 0.02f)),
        producer_host(normal(inputs, 1.0f, 0.2f)),
        mean_host(normal(channels, 0.1f)),
        factor_host(normal(channels, 0.2f, 1)),
        bias_host(normal(channels, 0.3f)),
        x(x_host),
        e(e_host),
        w_code(w_host.size()),
        w(w_host),
        sx(std::vector<float>{x_scale}),
        ox(std::vector<float>{x_offset}),
        se(std::vector<float>{e_scale}),
        oe(std::vector<float>{e_offset}),
        w_scale(channels),
        w_offset(channels),
        channel(channels),
        y(outputs),
        dx(inputs),
        dw(w_host.size()),
        producer(producer_host),
        gamma(normal(channels, 0.2f, 1)),
        beta(normal(channels, 0.2f)),
        running_mean(channels, 0),
        running_variance(channels, 0),
        norm(4 * channels),
        producer_norm(4 * channels),
        min(4),
        range(4),
        sums(4 * channels),
        work(bytes() * static_cast<std::size_t>(calls), 0),
        dwork(bytes() * static_cast<std::size_t>(calls), 0),
        wwork(sum_bytes() * static_cast<std::size_t>(calls), 0),
        work_bytes(bytes()),
        weight_bytes(sum_bytes()) {
    std::vector<float> all(mean_host);
    for (const auto* of : {&factor_host, &bias_host, &factor_host})
      all.insert(all.end(), of->begin(), of->end());
    check(cudaMemcpy(producer_norm.get(), all.data(), all.size() * sizeof(float), cudaMemcpyHostToDevice),
          "copy");
  }
  std::size_t bytes() const { return (statistics_bytes(g.outputs) + 255) / 256 * 256; }
  std::size_t sum_bytes() const { return (depthwise_weight_gradient_work_bytes(g.inputs) + 255) / 256 * 256; }
  void clear(cudaStream_t stream, int calls) const {
    const auto all = static_cast<std::size_t>(calls);
    cudaMemsetAsync(work.get(), 0, work_bytes * all, stream);
    cudaMemsetAsync(dwork.get(), 0, work_bytes * all, stream);
    cudaMemsetAsync(wwork.get(), 0, weight_bytes * all, stream);
  }

  WeightLayer layer() const {
    WeightLayer l;
    l.weight = w.get();
    l.outputs = g.outputs;
    l.kernel_rows = l.kernel_cols = 3;
    l.inputs = 1;
    l.bits = {bits};
    l.code = w_code.get();
    l.scale = w_scale.get();
    l.offset = w_offset.get();
    l.depthwise = channel.get();
    return l;
  }
  Codes xs() const { return {x.get(), sx.get(), ox.get(), {bits}}; }
  Codes es() const { return {e.get(), se.get(), oe.get(), {bits}}; }
  NormConstants constants(const Buffer<float>& of, int number) const {
    float* at = of.get();
    return {.mean = at,
            .factor = at + channels,
            .bias = at + 2 * channels,
            .inverse_deviation = at + 3 * channels,
            .min = min.get() + number,
            .range = range.get() + number};
  }
  OutputArguments output(bool with_statistics, int call) const {
    OutputArguments a{g, xs(), layer(), y.get(), {}};
    if (!with_statistics) return a;
    NormStatistics& s = a.statistics;
    s.work = work.get() + work_bytes * static_cast<std::size_t>(call);
    s.weight = gamma.get();
    s.bias = beta.get();
    s.running_mean = running_mean.get();
    s.running_variance = running_variance.get();
    s.momentum = 0.1;
    s.uses_batch = s.relu = true;
    s.out = constants(norm, 0);
    return a;
  }
  InputGradientArguments gradient(bool with_sums, int call) const {
    InputGradientArguments a;
    a.g = g;
    a.dy = es();
    a.w = layer();
    a.dx = dx.get();
    if (!with_sums) return a;
    NormGradientSums& s = a.sums;
    s.work = dwork.get() + work_bytes * static_cast<std::size_t>(call);
    s.norm = constants(producer_norm, 1);
    s.relu = s.uses_batch = true;
    s.y = producer.get();
    s.weight_gradient = sums.get();
    s.bias_gradient = sums.get() + channels;
    s.gradient_mean = sums.get() + 2 * channels;
    s.slope = sums.get() + 3 * channels;
    return a;
  }
  WeightGradientArguments weight_gradient(int call) const {
    return {.g = g,
            .dy = es(),
            .x = xs(),
            .work = wwork.get() + weight_bytes * static_cast<std::size_t>(call),
            .dw = dw.get()};
  }
};

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

// Beside each time the share of 4.2 TB/s that it makes of the bytes which must be read and written: codes once, floats once.
void time_depthwise(const std::string& name, const ConvGeometry& g) {
  const DepthwiseCase c(g, 8, true, Pattern::kDrawn, kCalls);
  const WeightLayer layer = c.layer();
  encode_depthwise_weights(&layer, 1, nullptr);
  depthwise_output(c.output(true, 0), nullptr);
  depthwise_input_gradient(c.gradient(true, 0), nullptr);
  const auto clear = [&](cudaStream_t s) { c.clear(s, kCalls); };
  const double in = static_cast<double>(c.inputs), out = static_cast<double>(c.outputs);
  const struct {
    double us, bytes;
  } passes[] = {
      {time_of([&](cudaStream_t s, int i) { depthwise_output(c.output(true, i), s); }, clear), in + 4 * out},
      {time_of([&](cudaStream_t s, int) { depthwise_output(c.output(false, 0), s); }), in + 4 * out},
      {time_of([&](cudaStream_t s, int i) { depthwise_input_gradient(c.gradient(true, i), s); }, clear),
       out + 8 * in},
      {time_of([&](cudaStream_t s, int) { depthwise_input_gradient(c.gradient(false, 0), s); }),
       out + 4 * in},
      {time_of([&](cudaStream_t s, int i) { depthwise_weight_gradient(c.weight_gradient(i), s); }, clear),
       in + out}};
  std::printf("%-22s", name.c_str());
  for (const auto& of : passes) std::printf(" %7.2f %4.2f", of.us, of.bytes / 4.2e6 / of.us);
  std::printf("\n");
  check(cudaDeviceSynchronize(), name.c_str());
}

void time_all_depthwise() {
  std::printf(
      "\ndepthwise, microseconds      output     no stat.   gradient+s     gradient       weight gradient\n");
  time_depthwise("32 32x32, 128", depthwise_geometry(128, 32, 32, 32, 1, 1));
  time_depthwise("96 32x32, 128", depthwise_geometry(128, 32, 32, 96, 1, 1));
  time_depthwise("144 32x32, 128", depthwise_geometry(128, 32, 32, 144, 1, 1));
  time_depthwise("144 32x32/2, 128", depthwise_geometry(128, 32, 32, 144, 2, 1));
  time_depthwise("192 16x16, 128", depthwise_geometry(128, 16, 16, 192, 1, 1));
  time_depthwise("192 16x16/2, 128", depthwise_geometry(128, 16, 16, 192, 2, 1));
  time_depthwise("384 8x8, 128", depthwise_geometry(128, 8, 8, 384, 1, 1));
  time_depthwise("576 8x8, 128", depthwise_geometry(128, 8, 8, 576, 1, 1));
  time_depthwise("576 8x8/2, 128", depthwise_geometry(128, 8, 8, 576, 2, 1));
  time_depthwise("960 4x4, 128", depthwise_geometry(128, 4, 4, 960, 1, 1));
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

void check_all() {
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

void time_all() {
  std::printf(
      "\nmicroseconds           weights   output  no stat   encode      add   range  codes   dgrad+s    "
      "dgrad    wgrad  stay: encode   add  back  back+residual\n");
  time_layer("stem 3>16 32x32", geometry(128, 32, 3, 16, 3, 1, 1));
  time_layer("16>16 32x32, 128", geometry(128, 32, 16, 16, 3, 1, 1));
  time_layer("16>32/2", geometry(128, 32, 16, 32, 3, 2, 1));
  time_layer("32>32 16x16, 128", geometry(128, 16, 32, 32, 3, 1, 1));
  time_layer("64>64 8x8, 128", geometry(128, 8, 64, 64, 3, 1, 1));
  time_layer("32>64/2", geometry(128, 16, 32, 64, 3, 2, 1));
  time_layer("64>64 56x56, 64", geometry(64, 56, 64, 64, 3, 1, 1));
  time_layer("128>128 28x28, 64", geometry(64, 28, 128, 128, 3, 1, 1));
  time_layer("256>256 14x14, 64", geometry(64, 14, 256, 256, 3, 1, 1));
  time_layer("512>512 7x7, 64", geometry(64, 7, 512, 512, 3, 1, 1));
  time_layer("64>128/2 56x56, 64", geometry(64, 56, 64, 128, 3, 2, 1));
  time_layer("256>64 1x1 56x56, 64", geometry(64, 56, 256, 64, 1, 1, 0));
  time_layer("64>256 1x1 56x56, 64", geometry(64, 56, 64, 256, 1, 1, 0));
  time_layer("512>128 1x1 28x28", geometry(64, 28, 512, 128, 1, 1, 0));
  time_layer("128>512 1x1 28x28", geometry(64, 28, 128, 512, 1, 1, 0));
  time_layer("1024>256 1x1 14x14", geometry(64, 14, 1024, 256, 1, 1, 0));
  time_layer("256>1024 1x1 14x14", geometry(64, 14, 256, 1024, 1, 1, 0));
  time_layer("2048>512 1x1 7x7", geometry(64, 7, 2048, 512, 1, 1, 0));
  time_layer("512>2048 1x1 7x7", geometry(64, 7, 512, 2048, 1, 1, 0));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string asked = argc > 1 ? argv[1] : "";
  if (asked != "depthwise") check_all();
  check_depthwise();
  if (asked == "") time_all();
  if (asked != "check") time_all_depthwise();
  std::printf(failed ? "FAILED\n" : "all agree\n");
  return failed ? 1 : 0;
}
