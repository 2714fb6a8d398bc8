#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "lowtide/quant/quantized.h"

// Sums over rows that do not depend on the number of threads. libtorch shares columns out among threads, and a column at the
// edge of a thread's part is summed in another order than one in its middle.
namespace lowtide {

// The sum over all dimensions but the last.
at::Tensor sum_rows(const at::Tensor& x);

// The same of a matrix's values, by its codes.
at::Tensor sum_rows(const Quantized& x);

// The values of a matrix of codes, each row of them times its factor (undefined: 1), and their sums over rows, without
// the factors.
struct DecodedRows {
  at::Tensor values, sums;
};
DecodedRows decode_and_sum(const Quantized& x, const at::Tensor& factor);

// Σ weight[i] · x[i] over the rows of a matrix.
at::Tensor sum_rows(const at::Tensor& x, const at::Tensor& weight);

// `count` copies of x along a new first dimension, as a view; the gradient of x is the sum over them. It serves where a
// parameter is broadcast over items: autograd's own sum would depend on the number of threads.
at::Tensor repeat_rows(const at::Tensor& x, std::int64_t count);

}  // namespace lowtide
