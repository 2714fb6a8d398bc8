#include "lowtide/base/cuda_launch.h"
#include "lowtide/nn/layer_norm_kernels.h"
#include "lowtide/nn/row_kernels.h"
#include "lowtide/nn/warp_rows.cuh"

namespace lowtide {
namespace {

// Rows are whole blocks of 128 numbers.
__device__ bool exists(int j, int columns) { return j / kFour * kNoiseBlock < columns; }

// Of a row's numbers those that a lane has; zeros where there are none.
template <int kNumbers>
__device__ void load_row(const float* row, int columns, int lane, float (&x)[kNumbers]) {
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) x[j] = exists(j, columns) ? row[column_of(lane, j)] : 0.0f;
}

template <int kNumbers>
__global__ void __launch_bounds__(kThreads) residual_norm_kernel(ResidualNormArguments a) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= a.rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t first = row * a.columns;
  float x[kNumbers];
  load_row(a.x + first, a.columns, lane, x);
  if (a.added != nullptr) {
    float added[kNumbers];
    load_row(a.added + first, a.columns, lane, added);
    if (a.dropout.scale != 0.0f) {
      float factor[kNumbers];
      draw_whole_factors(a.dropout, a.columns, row, lane, factor);
#pragma unroll
      for (int j = 0; j < kNumbers; ++j) added[j] = __fmul_rn(added[j], factor[j]);
    }
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) {
      if (!exists(j, a.columns)) break;
      x[j] = __fadd_rn(x[j], added[j]);
      a.sum[first + column_of(lane, j)] = x[j];
    }
  }
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) sum += x[j];
  const float mean = sum_of_warp(sum) / static_cast<float>(a.columns);
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) {
    const float from_mean = exists(j, a.columns) ? x[j] - mean : 0.0f;
    squares += from_mean * from_mean;
  }
  const float variance = sum_of_warp(squares) / static_cast<float>(a.columns);
  const float inverse = 1.0f / sqrtf(variance + static_cast<float>(a.epsilon));
  if (lane == 0) {
    a.mean[row] = mean;
    a.inverse[row] = inverse;
  }
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) {
    const int column = column_of(lane, j);
    if (exists(j, a.columns))
      a.y[first + column] = (x[j] - mean) * inverse * a.weight[column] + a.bias[column];
  }
}

// A block some rows, whose warps' sums for the columns are joined in their order.
template <int kNumbers>
__global__ void __launch_bounds__(kThreads) residual_norm_gradient_kernel(ResidualNormGradientArguments a) {
  __shared__ float joined[2][kMostNormedColumns];
  const int lane = static_cast<int>(threadIdx.x % kWarp), warp = static_cast<int>(threadIdx.x / kWarp);
  const std::int64_t begin = a.rows * blockIdx.x / gridDim.x, end = a.rows * (blockIdx.x + 1) / gridDim.x;
  float dweight[kNumbers]{}, dbias[kNumbers]{};
  for (std::int64_t row = begin + warp; row < end; row += kRowsPerBlock) {
    const std::int64_t first = row * a.columns;
    const float mean = a.mean[row], inverse = a.inverse[row];
    float x[kNumbers], g[kNumbers];
    load_row(a.sum + first, a.columns, lane, x);
    load_row(a.gradient + first, a.columns, lane, g);
    float plain = 0, product = 0;
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) {
      const int column = column_of(lane, j);
      if (!exists(j, a.columns)) break;
      x[j] = (x[j] - mean) * inverse;
      dweight[j] += g[j] * x[j];
      dbias[j] += g[j];
      g[j] *= a.weight[column];
      plain += g[j];
      product += g[j] * x[j];
    }
    const auto count = static_cast<float>(a.columns);
    plain = sum_of_warp(plain) / count;
    product = sum_of_warp(product) / count;
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) {
      g[j] = inverse * (g[j] - plain - x[j] * product);
      if (exists(j, a.columns)) a.dx[first + column_of(lane, j)] = g[j];
    }
    if (a.dadded == nullptr) continue;
    draw_whole_factors(a.dropout, a.columns, row, lane, x);
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) {
      if (exists(j, a.columns)) a.dadded[first + column_of(lane, j)] = g[j] * x[j];
    }
  }
  for (int turn = 0; turn < kRowsPerBlock; ++turn) {
    if (turn == warp) {
#pragma unroll
      for (int j = 0; j < kNumbers; ++j) {
        const int column = column_of(lane, j);
        if (!exists(j, a.columns)) break;
        joined[0][column] = turn == 0 ? dweight[j] : joined[0][column] + dweight[j];
        joined[1][column] = turn == 0 ? dbias[j] : joined[1][column] + dbias[j];
      }
    }
    __syncthreads();
  }
  float* partial = a.partial + static_cast<std::int64_t>(blockIdx.x) * 2 * a.columns;
  for (int column = static_cast<int>(threadIdx.x); column < a.columns; column += kThreads) {
    partial[column] = joined[0][column];
    partial[a.columns + column] = joined[1][column];
  }
}

}  // namespace

void residual_norm_on_gpu(const ResidualNormArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  const auto blocks = static_cast<unsigned>((a.rows + kRowsPerBlock - 1) / kRowsPerBlock);
  if (a.columns <= 256) {
    residual_norm_kernel<8><<<blocks, kThreads, 0, stream>>>(a);
  } else if (a.columns <= 768) {
    residual_norm_kernel<24><<<blocks, kThreads, 0, stream>>>(a);
  } else {
    residual_norm_kernel<32><<<blocks, kThreads, 0, stream>>>(a);
  }
  check_launch("a residual's norm");
}

void residual_norm_gradient_on_gpu(const ResidualNormGradientArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  constexpr auto parts = static_cast<unsigned>(kNormParts);
  if (a.columns <= 256) {
    residual_norm_gradient_kernel<8><<<parts, kThreads, 0, stream>>>(a);
  } else if (a.columns <= 768) {
    residual_norm_gradient_kernel<24><<<parts, kThreads, 0, stream>>>(a);
  } else {
    residual_norm_gradient_kernel<32><<<parts, kThreads, 0, stream>>>(a);
  }
  check_launch("the gradient of a residual's norm");
  join_parts_on_gpu(a.partial, kNormParts, 2 * a.columns, a.weight_and_bias, opaque_stream);
}

}  // namespace lowtide
