#include "bench/matrix_kernels/drawn.h"
#include "bench/matrix_kernels/noise.cuh"

namespace lowtide::cuda::bench {

namespace {

__global__ void plain_dropout(const float* x, std::int64_t n, NoiseCounter counter, float* y) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * factor_at(i, counter);
}

}  // namespace

void drop(const float* x, std::size_t n, float* y) {
  plain_dropout<<<blocks_of(n), 256>>>(x, static_cast<std::int64_t>(n), kCounter, y);
}

}  // namespace lowtide::cuda::bench
