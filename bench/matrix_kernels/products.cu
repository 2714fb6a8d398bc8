#include <algorithm>

#include "bench/gpu_checks.h"
#include "bench/matrix_kernels/matrix.h"
#include "bench/matrix_kernels/subjects.h"
#include "bench/matrix_kernels/timing.h"

namespace lowtide::cuda::bench {

namespace {

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
         distance(rows_apart(y.host(), rows, columns, step), plain.host()), 1e-6);
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
         distance(rows_apart(y.host(), rows, columns, step), plain.host()), 1e-6);
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

}  // namespace

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

void time_products() {
  time_products(8192, 768, 768);
  time_products(8192, 3072, 768);
  time_products(8192, 768, 3072);
  time_products(169343, 512, 512);
  time_products(169343, 40, 512);
}

}  // namespace lowtide::cuda::bench
