// The kernels that products of matrices and what stands between them are made of, by themselves, without torch: each is compared
// with the same in double precision, by plain kernels on the GPU, then timed on the shapes of BERT and of OGBN-Arxiv's graph, as
// nodes of a graph; with the argument `check` not timed.
//     nvcc -std=c++20 -gencode arch=compute_90a,code=sm_90a -I. bench/matrix_kernels.cu lowtide/engine/cuda/{byte_product,aggregate,norm}.cu
//       lowtide/quant/quantizer_cuda.cu lowtide/nn/{attention,dropout,layer_norm,row_kernels,tensor_norm}.cu -o matrix_kernels
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lowtide/engine/cuda/aggregate_kernels.h"
#include "lowtide/engine/cuda/byte_product.h"
#include "lowtide/nn/attention_kernels.h"
#include "lowtide/nn/dropout_kernels.h"
#include "lowtide/nn/layer_norm_kernels.h"
#include "lowtide/nn/row_kernels.h"
#include "lowtide/nn/tensor_norm_kernels.h"
#include "lowtide/quant/noise.h"
#include "lowtide/quant/quantizer_kernels.h"

namespace {

using namespace lowtide;        // NOLINT
using namespace lowtide::cuda;  // NOLINT

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

cudaStream_t stream = nullptr;  // NOLINT

template <typename T>
class Buffer {
 public:
  explicit Buffer(std::size_t n) : n_(n) {
    check(cudaMalloc(&p_, n * sizeof(T) + 256), "cudaMalloc");
    check(cudaMemset(p_, 0x7f, n * sizeof(T)), "cudaMemset");  // poison: what is not written shows
  }
  explicit Buffer(const std::vector<T>& v) : Buffer(v.size()) {
    check(cudaMemcpy(p_, v.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(p_); }
  operator T*() const { return p_; }  // NOLINT
  std::size_t size() const { return n_; }
  std::vector<T> host() const {
    check(cudaDeviceSynchronize(), "kernels");
    std::vector<T> v(n_);
    check(cudaMemcpy(v.data(), p_, n_ * sizeof(T), cudaMemcpyDeviceToHost), "copy");
    return v;
  }

 private:
  T* p_ = nullptr;
  std::size_t n_;
};

// ---- Drawn numbers and plain references, on the GPU ----------------------------------------------------------------

__device__ std::uint32_t word_at(std::uint32_t seed, std::int64_t i) {
  return Philox::block(seed, 77, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0)
      .word[0];
}
__global__ void draw_codes(std::uint8_t* to, std::int64_t n, unsigned top, std::uint32_t seed) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) to[i] = static_cast<std::uint8_t>(word_at(seed, i) % (top + 1));
}
// A sum of four even numbers: near enough to a normal one.
__global__ void draw_floats(float* to, std::int64_t n, float scale, float shift, std::uint32_t seed) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const Philox::Block b = Philox::block(seed, 78, static_cast<std::uint32_t>(i), 0, 0, 0);
  float sum = -2;
  for (const std::uint32_t w : b.word) sum += static_cast<float>(w) * 0x1p-32f;
  to[i] = sum * 1.7f * scale + shift;
}

unsigned blocks_of(std::size_t n) { return static_cast<unsigned>((n + 255) / 256); }

std::unique_ptr<Buffer<std::uint8_t>> codes(std::size_t n, int bits) {
  static std::uint32_t seed = 1;
  auto b = std::make_unique<Buffer<std::uint8_t>>(n);
  draw_codes<<<blocks_of(n), 256>>>(*b, static_cast<std::int64_t>(n), (1u << bits) - 1, seed++);
  return b;
}
std::unique_ptr<Buffer<float>> floats(std::size_t n, float scale = 1, float shift = 0) {
  static std::uint32_t seed = 1000;
  auto b = std::make_unique<Buffer<float>>(n);
  draw_floats<<<blocks_of(n), 256>>>(*b, static_cast<std::int64_t>(n), scale, shift, seed++);
  return b;
}

bool failed = false;  // NOLINT
void report(const std::string& what, double difference, double allowed) {
  const bool is_right = difference <= allowed;  // a NaN is not
  failed |= !is_right;
  std::printf("%-58s %9.2e of at most %8.1e  %s\n", what.c_str(), difference, allowed,
              is_right ? "agrees" : "DIFFERS");
}
// The largest difference over the largest number.
template <typename A, typename B>
double difference(const std::vector<A>& a, const std::vector<B>& b) {
  double most = 0, largest = 1e-30;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= most)) most = d;
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return most / largest;
}

// ---- Products ------------------------------------------------------------------------------------------------------

struct Matrix {
  std::unique_ptr<Buffer<std::uint8_t>> code;
  std::unique_ptr<Buffer<float>> scale, offset;
  MatrixCodes view;

  Matrix(int rows, int columns, int bits, bool by_row, float spread) {
    const std::size_t ranges = by_row ? static_cast<std::size_t>(rows) : 1;
    code = codes(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns), bits);
    scale = floats(ranges, 0.1f * spread, spread);
    offset = floats(ranges, 3 * spread, -100 * spread * (1 << bits) / 256);
    view.code = *code;
    view.scale = *scale;
    view.offset = *offset;
    view.by_row = by_row;
    view.bits = bits;
    view.rows = rows;
    view.columns = columns;
  }
};

__device__ double value_at(const MatrixCodes& q, int row, int column) {
  const int at = q.by_row ? row : 0;
  return static_cast<double>(q.code[static_cast<std::int64_t>(row) * q.columns + column]) *
             static_cast<double>(q.scale[at]) +
         static_cast<double>(q.offset[at]);
}
// Rows `step` apart; b is columns × terms, or terms × columns.
__global__ void plain_product(MatrixCodes a, MatrixCodes b, bool b_by_terms, const float* bias, int step,
                              double* y) {
  const int columns = b_by_terms ? b.columns : b.rows,
            column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int row = static_cast<int>(blockIdx.y) * step;
  if (column >= columns) return;
  double sum = bias == nullptr ? 0 : static_cast<double>(bias[column]);
  for (int k = 0; k < a.columns; ++k)
    sum += value_at(a, row, k) * (b_by_terms ? value_at(b, k, column) : value_at(b, column, k));
  y[static_cast<std::int64_t>(blockIdx.y) * columns + column] = sum;
}

struct Timing {
  std::string name;
  double bytes, operations;
  std::function<void(int)> launch;  // with buffers of this turn
};
std::vector<Timing> timings;  // NOLINT

std::vector<float> rows_apart(const std::vector<float>& y, int rows, int columns, int step) {
  std::vector<float> some;
  for (int row = 0; row < rows; row += step)
    some.insert(some.end(), y.begin() + static_cast<std::ptrdiff_t>(row) * columns,
                y.begin() + static_cast<std::ptrdiff_t>(row + 1) * columns);
  return some;
}

void check_codes_product(int rows, int columns, int terms, int bits, bool a_by_row) {
  const Matrix a(rows, terms, bits, a_by_row, 0.01f), b(columns, terms, bits, true, 0.002f);
  const auto bias = floats(static_cast<std::size_t>(columns));
  Buffer<int> sums(static_cast<std::size_t>(columns));
  Buffer<float> y(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
  sum_code_rows(b.view, sums, stream);
  multiply_bytes({.a = a.view, .b = b.view, .b_sums = sums, .bias = *bias, .y = y}, stream);
  const int step = std::max(1, rows / 50), some = (rows + step - 1) / step;
  Buffer<double> plain(static_cast<std::size_t>(some) * static_cast<std::size_t>(columns));
  plain_product<<<dim3(blocks_of(static_cast<std::size_t>(columns)), static_cast<unsigned>(some)), 256>>>(
      a.view, b.view, false, *bias, step, plain);
  report("bytes " + std::to_string(rows) + " x " + std::to_string(columns) + " x " + std::to_string(terms) +
             ", " + std::to_string(bits) + " bits",
         difference(rows_apart(y.host(), rows, columns, step), plain.host()), 1e-6);
}

void check_limbs_product(int rows, int columns, int terms, int bits, bool a_by_row) {
  const Matrix a(rows, terms, bits, a_by_row, 0.01f), b(terms, columns, bits, true, 0.002f);
  Buffer<std::int8_t> limbs(static_cast<std::size_t>(kByteLimbs * columns) * static_cast<std::size_t>(terms));
  Buffer<int> sums(static_cast<std::size_t>(limb_sum_parts(terms) * kByteLimbs * columns));
  Buffer<float> unit(1), y(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
  const LimbMatrix to{.limb = limbs, .sum = sums, .unit = unit, .terms = terms, .columns = columns};
  make_limbs(b.view, to, stream);
  multiply_limbs({a.view, to, y}, stream);
  const int step = std::max(1, rows / 50), some = (rows + step - 1) / step;
  Buffer<double> plain(static_cast<std::size_t>(some) * static_cast<std::size_t>(columns));
  plain_product<<<dim3(blocks_of(static_cast<std::size_t>(columns)), static_cast<unsigned>(some)), 256>>>(
      a.view, b.view, true, nullptr, step, plain);
  report("limbs " + std::to_string(rows) + " x " + std::to_string(columns) + " x " + std::to_string(terms) +
             ", " + std::to_string(bits) + " bits",
         difference(rows_apart(y.host(), rows, columns, step), plain.host()), 1e-6);
}

void time_products(int rows, int columns, int terms) {
  const double size = static_cast<double>(rows) * columns * 4 + static_cast<double>(rows) * terms;
  const double operations = 2.0 * rows * columns * terms;
  const std::string shape =
      std::to_string(rows) + " x " + std::to_string(columns) + " x " + std::to_string(terms);
  auto a = std::make_shared<Matrix>(rows, terms, 8, true, 0.01f);
  auto b = std::make_shared<Matrix>(columns, terms, 8, true, 0.002f);
  auto t = std::make_shared<Matrix>(terms, columns, 8, true, 0.002f);
  auto y =
      std::make_shared<Buffer<float>>(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
  auto sums =
      std::make_shared<Buffer<int>>(static_cast<std::size_t>(limb_sum_parts(terms) * kByteLimbs * columns));
  auto limbs = std::make_shared<Buffer<std::int8_t>>(static_cast<std::size_t>(kByteLimbs * columns) *
                                                     static_cast<std::size_t>(terms));
  auto unit = std::make_shared<Buffer<float>>(1);
  timings.push_back({"bytes " + shape, size, operations, [=](int) {
                       multiply_bytes({.a = a->view, .b = b->view, .b_sums = *sums, .y = *y}, stream);
                     }});
  timings.push_back(
      {"limbs " + shape, size, 3 * operations, [=](int) {
         multiply_limbs(
             {a->view, {.limb = *limbs, .sum = *sums, .unit = *unit, .terms = terms, .columns = columns}, *y},
             stream);
       }});
  timings.push_back({"  limbs of the weight", 4.0 * terms * columns, 0, [=](int) {
                       make_limbs(
                           t->view,
                           {.limb = *limbs, .sum = *sums, .unit = *unit, .terms = terms, .columns = columns},
                           stream);
                     }});
  timings.push_back({"  sums of the weight", 1.0 * terms * columns, 0,
                     [=](int) { sum_code_rows(b->view, *sums, stream); }});
}

// ---- Ranges, codes, dropout ----------------------------------------------------------------------------------------

const NoiseCounter kCounter{11, 22, 33, 44, 55};  // NOLINT

__global__ void plain_codes(EncodeArguments a, NoiseCounter counter, std::uint8_t* code) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.rows * a.length) return;
  const std::int64_t row = i / a.length;
  const float top = a.bits.top(), scale = scale_of(a.range[row], top);
  const float v = __fadd_rn(__fdiv_rn(__fsub_rn(a.x[i], a.min[row]), scale), noise_at(counter, i));
  code[i] = static_cast<std::uint8_t>(__float2int_rn(fminf(fmaxf(v, 0.0f), top)));
}

void check_codes(std::int64_t rows, std::int64_t length, int bits) {
  const auto n = static_cast<std::size_t>(rows * length);
  const auto x = floats(n);
  Buffer<float> min(static_cast<std::size_t>(rows)), range(static_cast<std::size_t>(rows)),
      scale(static_cast<std::size_t>(rows));
  Buffer<std::uint8_t> scratch(kRangeScratchBytes), code(n), plain(n);
  kCudaQuantizer.measure_range(
      {.x = *x, .min = min, .range = range, .rows = rows, .length = length, .scratch = scratch}, stream);
  EncodeArguments a;
  a.x = *x;
  a.min = min;
  a.range = range;
  a.scale = scale;
  a.code = code;
  a.rows = rows;
  a.length = length;
  a.bits = bits;
  a.counter = &kCounter;
  kCudaQuantizer.encode(a, stream);
  plain_codes<<<blocks_of(n), 256>>>(a, kCounter, plain);
  const std::string shape =
      std::to_string(rows) + " x " + std::to_string(length) + ", " + std::to_string(bits) + " bits";
  report("codes with noise, " + shape, code.host() == plain.host() ? 0 : 1, 0);
  const std::vector<float> values = x->host(), low = min.host(), wide = range.host(), scales = scale.host();
  double wrong = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto [least, most] =
        std::minmax_element(values.begin() + row * length, values.begin() + (row + 1) * length);
    const auto r = static_cast<std::size_t>(row);
    wrong += low[r] != *least || wide[r] != *most - *least ||
             scales[r] != scale_of(wide[r], static_cast<float>((1 << bits) - 1));
  }
  report("ranges and scales, " + shape, wrong, 0);
}

void check_positions(std::int64_t items, std::int64_t positions, std::int64_t length) {
  const auto x = floats(static_cast<std::size_t>(items * positions * length));
  Buffer<float> min(static_cast<std::size_t>(items * positions)),
      range(static_cast<std::size_t>(items * positions));
  measure_positions_on_gpu(
      {.x = *x, .min = min, .range = range, .items = items, .positions = positions, .length = length},
      stream);
  const std::vector<float> values = x->host(), low = min.host(), wide = range.host();
  double wrong = 0;
  for (std::int64_t p = 0; p < positions; ++p) {
    float least = INFINITY, most = -INFINITY;
    for (std::int64_t i = 0; i < items; ++i) {
      const auto [l, m] = std::minmax_element(values.begin() + (i * positions + p) * length,
                                              values.begin() + (i * positions + p + 1) * length);
      least = std::min(least, *l);
      most = std::max(most, *m);
    }
    for (std::int64_t i = 0; i < items; ++i) {
      const auto at = static_cast<std::size_t>(i * positions + p);
      wrong += low[at] != least || wide[at] != most - least;
    }
  }
  report("ranges by position, " + std::to_string(items) + " x " + std::to_string(positions) + " x " +
             std::to_string(length),
         wrong, 0);
}

constexpr float kKeptScale = 1 / 0.9f;
__device__ float factor_at(std::int64_t i, const NoiseCounter& counter) {
  const float v = __fadd_rn(__fdiv_rn(1.0f, kKeptScale), noise_at(counter, i));
  return static_cast<float>(__float2int_rn(fminf(fmaxf(v, 0.0f), 1.0f))) * kKeptScale;
}
__global__ void plain_dropout(const float* x, std::int64_t n, NoiseCounter counter, float* y) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * factor_at(i, counter);
}

void check_dropout(std::size_t n) {
  const auto x = floats(n);
  Buffer<float> y(n), plain(n), back(n);
  Buffer<std::uint8_t> code(n);
  dropout_on_gpu({.x = *x,
                  .y = y,
                  .code = code,
                  .n = static_cast<std::int64_t>(n),
                  .scale = kKeptScale,
                  .counter = kCounter},
                 stream);
  mask_on_gpu({.x = *x, .code = code, .y = back, .n = static_cast<std::int64_t>(n), .scale = kKeptScale},
              stream);
  plain_dropout<<<blocks_of(n), 256>>>(*x, static_cast<std::int64_t>(n), kCounter, plain);
  report("dropout of " + std::to_string(n), y.host() == plain.host() && back.host() == plain.host() ? 0 : 1,
         0);
}

// ---- Attention -----------------------------------------------------------------------------------------------------

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
  report("attention's weights, " + shape, difference(y, plain.host()), 1e-6);
  report("attention's gradient, " + shape, difference(result.host(), plain_gradient.host()), 2e-6);
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

// ---- Norms, rows, graphs -------------------------------------------------------------------------------------------

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
  plain_dropout<<<blocks_of(n), 256>>>(ones, static_cast<std::int64_t>(n), kCounter, factors);
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
  report("norm of a residual, " + shape, difference(y.host(), ys), 2e-6);
  report("  its gradient", difference(dx.host(), dxs), 2e-6);
  if (dropout != 0) report("  its gradient at what was added", difference(dadded.host(), das), 2e-6);
  report("  its weight's and bias's", difference(both.host(), sums), 2e-6);
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
  plain_dropout<<<blocks_of(n), 256>>>(ones, static_cast<std::int64_t>(n), kCounter, factors);
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
  report("norm of a tensor of " + std::to_string(n), difference(y.host(), ys), 2e-6);
  report("  its gradient", difference(dx.host(), dxs), 2e-6);
}

void check_rows(int rows, int columns) {
  const auto n = static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  const auto x = floats(n), factor = floats(static_cast<std::size_t>(rows), 0.3f, 1),
             bias = floats(static_cast<std::size_t>(columns));
  Buffer<float> y(n), sum(static_cast<std::size_t>(columns)),
      partial(static_cast<std::size_t>(sum_parts(rows) * columns)), decoded(n);
  const auto xs = x->host(), fs = factor->host(), bs = bias->host();
  std::vector<double> ys(n), sums(static_cast<std::size_t>(columns)), ds(n);
  if (columns % 4 == 0 && columns <= kMostRoundedColumns) {
    round_rows_on_gpu(
        {.x = *x, .factor = *factor, .bias = *bias, .bits = 8, .y = y, .rows = rows, .columns = columns},
        stream);
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
      const auto first = xs.begin() + static_cast<std::ptrdiff_t>(r) * columns;
      const auto [least, most] = std::minmax_element(first, first + columns);
      const float scale = scale_of(*most - *least, 255);
      for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c) {
        const double code =
            std::nearbyint(std::min((first[static_cast<std::ptrdiff_t>(c)] - *least) / scale, 255.0f));
        ys[r * static_cast<std::size_t>(columns) + c] =
            (code * static_cast<double>(scale) + static_cast<double>(*least)) * static_cast<double>(fs[r]) +
            static_cast<double>(bs[c]);
      }
    }
    report("rows rounded, " + std::to_string(rows) + " x " + std::to_string(columns),
           difference(y.host(), ys), 1e-6);
  }
  for (const bool by_row : {false, true}) {
    const Matrix q(rows, columns, 8, by_row, 0.01f);
    SumCodesArguments a{.code = q.view.code,
                        .scale = q.view.scale,
                        .offset = q.view.offset,
                        .by_row = by_row,
                        .factor = *factor,
                        .y = decoded,
                        .sum = sum,
                        .partial = partial,
                        .rows = rows,
                        .columns = columns};
    sum_codes_on_gpu(a, stream);
    const auto c = q.code->host();
    const auto s = q.scale->host(), o = q.offset->host();
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t row = i / static_cast<std::size_t>(columns), at = by_row ? row : 0;
      const double value =
          static_cast<double>(c[i]) * static_cast<double>(s[at]) + static_cast<double>(o[at]);
      ds[i] = value * static_cast<double>(fs[row]);
      sums[i % static_cast<std::size_t>(columns)] += value;
    }
    report("codes summed, " + std::to_string(rows) + " x " + std::to_string(columns),
           difference(sum.host(), sums), 2e-6);
    report("  decoded", difference(decoded.host(), ds), 1e-6);
  }
}

struct Graph {
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> indices;
};
Graph drawn_graph(int nodes, double degree, int long_row) {
  std::mt19937 generator(5);
  std::poisson_distribution<int> of(degree);
  Graph g;
  for (int i = 0; i < nodes; ++i) {
    const int entries = i == nodes / 2 ? long_row : of(generator);
    for (int e = 0; e < entries; ++e)
      g.indices.push_back(static_cast<std::int32_t>(generator() % static_cast<unsigned>(nodes)));
    g.offsets.push_back(static_cast<std::int64_t>(g.indices.size()));
  }
  return g;
}

void check_aggregation(int width, int heads, bool coded) {
  constexpr int kNodes = 3000;
  const Graph g = drawn_graph(kNodes, 9, 1500);
  const Buffer<std::int64_t> offsets(g.offsets);
  const Buffer<std::int32_t> indices(g.indices);
  const auto x = floats(static_cast<std::size_t>(kNodes * width)),
             weights = floats(g.indices.size() * static_cast<std::size_t>(heads)), rf = floats(kNodes),
             cf = floats(kNodes);
  const Matrix q(kNodes, width, 8, true, 0.01f);
  Buffer<float> y(static_cast<std::size_t>(kNodes * width));
  AggregateArguments a;
  a.offsets = offsets;
  a.indices = indices;
  a.weights = *weights;
  a.row_factor = *rf;
  a.column_factor = *cf;
  if (coded) {
    a.codes = q.view.code;
    a.scale = q.view.scale;
    a.offset = q.view.offset;
    a.by_row = true;
  } else {
    a.values = *x;
  }
  a.rows = kNodes;
  a.width = width;
  a.heads = heads;
  a.y = y;
  aggregate(a, stream);
  const auto xs = x->host(), ws = weights->host(), rs = rf->host(), cs = cf->host(), ss = q.scale->host(),
             os = q.offset->host();
  const auto codes_of = q.code->host();
  std::vector<double> ys(xs.size());
  for (std::size_t r = 0; r < kNodes; ++r) {
    for (auto e = static_cast<std::size_t>(g.offsets[r]); e < static_cast<std::size_t>(g.offsets[r + 1]);
         ++e) {
      const auto j = static_cast<std::size_t>(g.indices[e]);
      for (std::size_t c = 0; c < static_cast<std::size_t>(width); ++c) {
        const std::size_t at = j * static_cast<std::size_t>(width) + c,
                          head = c / static_cast<std::size_t>(width / heads);
        const double v = coded ? static_cast<double>(codes_of[at]) * static_cast<double>(ss[j]) +
                                     static_cast<double>(os[j])
                               : static_cast<double>(xs[at]);
        ys[r * static_cast<std::size_t>(width) + c] +=
            v * static_cast<double>(ws[e * static_cast<std::size_t>(heads) + head]) *
            static_cast<double>(cs[j]) * static_cast<double>(rs[r]);
      }
    }
  }
  report("sums over neighbours of " + std::to_string(width) + (coded ? " codes, " : " floats, ") +
             std::to_string(heads) + " heads",
         difference(y.host(), ys), 3e-6);
}

// ---- Times ---------------------------------------------------------------------------------------------------------

double microseconds(const Timing& t) {
  constexpr int kCalls = 12, kReplays = 3;
  cudaStream_t side = nullptr;
  check(cudaStreamCreate(&side), "stream");
  stream = side;
  check(cudaStreamBeginCapture(side, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < kCalls; ++i) t.launch(i);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamEndCapture(side, &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t began = nullptr, ended = nullptr;
  cudaEventCreate(&began);
  cudaEventCreate(&ended);
  check(cudaGraphLaunch(exec, side), "replay");
  double best = 1e30;
  for (int i = 0; i < kReplays; ++i) {
    cudaEventRecord(began, side);
    check(cudaGraphLaunch(exec, side), "replay");
    cudaEventRecord(ended, side);
    check(cudaEventSynchronize(ended), "replay");
    float ms = 0;
    cudaEventElapsedTime(&ms, began, ended);
    best = std::min(best, 1e3 * static_cast<double>(ms) / kCalls);
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(side);
  stream = nullptr;
  return best;
}

void time_passes() {
  constexpr int kRows = 8192, kWide = 3072;
  constexpr std::size_t kMost = static_cast<std::size_t>(169343) * 512;
  auto x = std::shared_ptr<Buffer<float>>(floats(kMost)), g = std::shared_ptr<Buffer<float>>(floats(kMost));
  auto y = std::make_shared<Buffer<float>>(kMost), z = std::make_shared<Buffer<float>>(kMost);
  auto code = std::make_shared<Buffer<std::uint8_t>>(kMost);
  auto min = std::shared_ptr<Buffer<float>>(floats(200000, 0.1f, -1)),
       range = std::shared_ptr<Buffer<float>>(floats(200000, 0.1f, 2)),
       scale = std::shared_ptr<Buffer<float>>(floats(200000, 0.001f, 0.01f));
  auto scratch = std::make_shared<Buffer<std::uint8_t>>(kRangeScratchBytes);
  auto work = std::make_shared<Buffer<double>>(kTensorMeansWork);
  const auto add = [](const std::string& name, double bytes, std::function<void(int)> f) {
    timings.push_back({name, bytes, 0, std::move(f)});
  };
  for (const int columns : {768, kWide}) {
    const double n = static_cast<double>(kRows) * columns;
    const std::string shape = " 8192 x " + std::to_string(columns);
    add("range" + shape, 4 * n, [=](int) {
      kCudaQuantizer.measure_range({.x = *x,
                                    .min = *min,
                                    .range = *range,
                                    .rows = 1,
                                    .length = static_cast<std::int64_t>(n),
                                    .scratch = *scratch},
                                   stream);
    });
    add("ranges by position" + shape, 4 * n, [=](int) {
      measure_positions_on_gpu(
          {.x = *x, .min = *min, .range = *range, .items = 64, .positions = 128, .length = columns}, stream);
    });
    add("codes with noise" + shape, 5 * n, [=](int) {
      EncodeArguments a;
      a.x = *x;
      a.min = *min;
      a.range = *range;
      a.scale = *scale;
      a.code = *code;
      a.rows = kRows;
      a.length = columns;
      a.bits = 8;
      a.counter = &kCounter;
      kCudaQuantizer.encode(a, stream);
    });
    add("codes summed" + shape, n, [=](int) {
      sum_codes_on_gpu({.code = *code,
                        .scale = *scale,
                        .offset = *min,
                        .by_row = true,
                        .sum = *y,
                        .partial = *z,
                        .rows = kRows,
                        .columns = columns},
                       stream);
    });
  }
  const double u = 8192.0 * 768 * 4;
  const DropoutNoise noise{kKeptScale, kCounter, nullptr};
  add("dropout 8192 x 768", 2.25 * u, [=](int) {
    dropout_on_gpu(
        {.x = *x, .y = *y, .code = *code, .n = 8192 * 768, .scale = kKeptScale, .counter = kCounter}, stream);
  });
  add("residual norm 8192 x 768", 4 * u, [=](int) {
    residual_norm_on_gpu({.x = *x,
                          .added = *g,
                          .dropout = noise,
                          .weight = *scale,
                          .bias = *min,
                          .epsilon = 1e-5,
                          .rows = kRows,
                          .columns = 768,
                          .sum = *y,
                          .y = *z,
                          .mean = *min,
                          .inverse = *range},
                         stream);
  });
  add("  its gradient", 4 * u, [=](int) {
    residual_norm_gradient_on_gpu({.sum = *x,
                                   .gradient = *g,
                                   .weight = *scale,
                                   .mean = *min,
                                   .inverse = *range,
                                   .dropout = noise,
                                   .rows = kRows,
                                   .columns = 768,
                                   .dx = *y,
                                   .dadded = *z,
                                   .partial = *z + kMost / 2,
                                   .weight_and_bias = *scale + 10000},
                                  stream);
  });
  AttendArguments a;
  a.scores = *x;
  a.mask = *min;
  a.mask_item = 128;
  a.factor = 0.125f;
  a.items = 64;
  a.heads = 12;
  a.rows = a.length = 128;
  a.dropout = noise;
  a.p = *y;
  a.weights = *z;
  a.min = *range;
  a.range = *scale;
  const double scores = 64.0 * 12 * 128 * 128 * 4;
  add("attention's weights", 3 * scores, [=](int) { attend_on_gpu(a, stream); });
  add("  their gradient", 3 * scores, [=](int) { attend_gradient_on_gpu({a, *x, *g, *y}, stream); });
  add("  ranges of errors by position, heads", scores, [=](int) {
    measure_positions_on_gpu(
        {.x = *x, .min = *min, .range = *range, .items = 64, .positions = 1536, .length = 128}, stream);
  });
  for (const bool transposed : {false, true})
    add(transposed ? "codes by head, transposed" : "codes by head", 1.25 * u, [=](int) {
      encode_heads_on_gpu({.x = *x,
                           .items = 64,
                           .length = 128,
                           .heads = 12,
                           .units = 64,
                           .transposed = transposed,
                           .bits = 8,
                           .code = *code,
                           .scale = *scale,
                           .min = *min},
                          stream);
    });
  const double features = static_cast<double>(kMost) * 4;
  const NormedTensor of{*x, static_cast<std::int64_t>(kMost), true, noise};
  add("graph: statistics of a norm", 2 * features, [=](int) {
    tensor_statistics_on_gpu({.of = of, .epsilon = 1e-5, .work = *work, .mean = *min, .factor = *range},
                             stream);
  });
  add("graph: ReLU, norm, dropout", 2 * features,
      [=](int) { normalise_on_gpu({.of = of, .mean = *min, .factor = *range, .y = *y}, stream); });
  add("graph: its gradient", 5 * features, [=](int) {
    normalise_gradient_on_gpu(
        {.of = of, .gradient = *g, .mean = *min, .factor = *range, .work = *work, .means = *scale, .dx = *y},
        stream);
  });
  add("graph: rows rounded", 2 * features, [=](int) {
    round_rows_on_gpu(
        {.x = *x, .factor = *range, .bias = *min, .bits = 8, .y = *y, .rows = 169343, .columns = 512},
        stream);
  });
  add("graph: range", features, [=](int) {
    kCudaQuantizer.measure_range({.x = *x,
                                  .min = *min,
                                  .range = *range,
                                  .rows = 1,
                                  .length = static_cast<std::int64_t>(kMost),
                                  .scratch = *scratch},
                                 stream);
  });
  add("graph: codes with noise", 1.25 * features, [=](int) {
    EncodeArguments e;
    e.x = *x;
    e.min = *min;
    e.range = *range;
    e.scale = *scale;
    e.code = *code;
    e.rows = 1;
    e.length = static_cast<std::int64_t>(kMost);
    e.bits = 8;
    e.counter = &kCounter;
    kCudaQuantizer.encode(e, stream);
  });
  add("graph: codes decoded and summed", 1.25 * features, [=](int) {
    sum_codes_on_gpu({.code = *code,
                      .scale = *scale,
                      .offset = *min,
                      .by_row = false,
                      .factor = *range,
                      .y = *y,
                      .sum = *scale + 10000,
                      .partial = *z,
                      .rows = 169343,
                      .columns = 512},
                     stream);
  });
  const Graph graph = drawn_graph(169343, 14.77, 15);
  auto offsets = std::make_shared<Buffer<std::int64_t>>(graph.offsets);
  auto indices = std::make_shared<Buffer<std::int32_t>>(graph.indices);
  for (const int width : {512, 128, 40}) {
    AggregateArguments s;
    s.offsets = *offsets;
    s.indices = *indices;
    s.row_factor = s.column_factor = *scale;
    s.values = *x;
    s.rows = 169343;
    s.width = width;
    s.y = *y;
    add("graph: sums over neighbours of " + std::to_string(width),
        static_cast<double>(graph.indices.size()) * width * 4, [=](int) {
          (void)offsets, (void)indices;
          aggregate(s, stream);
        });
  }
}

void check_products() {
  for (const bool by_row : {false, true}) {
    check_codes_product(200, 300, 208, 8, by_row);
    check_codes_product(129, 193, 16, 8, by_row);
    check_codes_product(77, 41, 528, 3, by_row);
    check_codes_product(8192, 768, 768, 8, by_row);
    check_limbs_product(200, 300, 208, 8, by_row);
    check_limbs_product(129, 65, 16, 8, by_row);
    check_limbs_product(77, 41, 528, 3, by_row);
    check_limbs_product(8192, 768, 3072, 8, by_row);
  }
}

void check_passes() {
  check_codes(1, 1000003, 8);
  check_codes(1, 128, 4);
  check_codes(300, 768, 8);
  check_codes(100, 3072, 5);
  check_codes(50, 40, 8);
  check_positions(5, 7, 36);
  check_positions(64, 4, 768);
  check_positions(3, 11, 13);
  check_dropout(1000001);
  check_dropout(640);
  for (const int length : {128, 64, 200, 37, 700}) {
    check_attention(2, 3, length, 0);
    check_attention(2, 3, length, kKeptScale);
  }
  for (const bool transposed : {false, true}) {
    check_heads(3, 128, 2, 64, transposed);
    check_heads(2, 35, 3, 32, transposed);
    check_heads(2, 100, 2, 128, transposed);
  }
  for (const int columns : {128, 768, 1024}) {
    check_residual_norm(300, columns, 0);
    check_residual_norm(515, columns, kKeptScale);
  }
  check_tensor_norm(1000003, 0);
  check_tensor_norm(700001, kKeptScale);
  check_rows(700, 40);
  check_rows(333, 512);
  check_rows(100, 1000);
  check_rows(65, 37);
  for (const bool coded : {false, true}) {
    check_aggregation(512, 1, coded);
    check_aggregation(40, 1, coded);
    check_aggregation(7, 1, coded);
    check_aggregation(96, 8, coded);
  }
}

void time_all_products() {
  time_products(8192, 768, 768);
  time_products(8192, 3072, 768);
  time_products(8192, 768, 3072);
  time_products(169343, 512, 512);
  time_products(169343, 40, 512);
}

}  // namespace

// Arguments: `products` or `passes` for these alone, `check` for no times.
int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto said = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const bool products = !said("passes") && can_multiply_bytes(), passes = !said("products");
  if (!can_multiply_bytes()) std::printf("products of bytes were not compiled for this GPU\n");
  if (products) check_products();
  if (passes) check_passes();
  std::printf("%s\n", failed ? "SOMETHING DIFFERS" : "all agree");
  if (said("check")) return failed ? 1 : 0;
  if (products) time_all_products();
  if (passes) time_passes();
  std::printf("%-46s %9s %8s %8s\n", "", "us", "TB/s", "TOP/s");
  for (const Timing& t : timings) {
    const double us = microseconds(t);
    std::printf("%-46s %9.2f %8.2f %8.0f\n", t.name.c_str(), us, t.bytes / us * 1e-6,
                t.operations / us * 1e-6);
  }
  return failed ? 1 : 0;
}
