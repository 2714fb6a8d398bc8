#include <algorithm>
#include <cmath>

#include "bench/gpu_checks.h"
#include "bench/matrix_kernels/drawn.h"
#include "bench/matrix_kernels/noise.cuh"
#include "bench/matrix_kernels/subjects.h"
#include "lowtide/nn/dropout_kernels.h"
#include "lowtide/quant/quantizer_kernels.h"

namespace lowtide::cuda::bench {

namespace {

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
  drop(*x, n, plain);
  report("dropout of " + std::to_string(n), y.host() == plain.host() && back.host() == plain.host() ? 0 : 1,
         0);
}

}  // namespace

void check_codes() {
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
}

}  // namespace lowtide::cuda::bench
