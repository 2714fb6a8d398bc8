#include <cuda_runtime.h>

#include <algorithm>

#include "lowtide/nn/tensor_norm_kernels.h"
#include "lowtide/quant/vector.cuh"

namespace lowtide {
namespace {

constexpr int kThreads = 256;
constexpr int kMeansBlocks = kTensorMeansWork / 2;

// Sums of a block's threads in a fixed order; valid in thread 0.
__device__ double2 sum_block(double plain, double product) {
  __shared__ double2 shared[kThreads];
  const auto thread = threadIdx.x;
  shared[thread] = make_double2(plain, product);
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) {
      shared[thread].x += shared[thread + half].x;
      shared[thread].y += shared[thread + half].y;
    }
  }
  return shared[0];
}

__global__ void __launch_bounds__(kThreads) partial_sums(TensorMeansArguments a) {
  const float from_x = *a.a, from_y = *a.b;
  double plain = 0, product = 0;
  const std::int64_t stride = static_cast<std::int64_t>(kMeansBlocks) * kThreads * kVector;
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  for (; at < a.n; at += stride) {
    const Vector x = Vector::load(a.x, at, a.n), y = Vector::load(a.y, at, a.n);
    float sum = 0, sum_of_products = 0;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (at + i >= a.n) break;
      sum += x.value[i];
      sum_of_products += (x.value[i] - from_x) * (y.value[i] - from_y);
    }
    plain += static_cast<double>(sum);
    product += static_cast<double>(sum_of_products);
  }
  const double2 all = sum_block(plain, product);
  if (threadIdx.x == 0) {
    a.work[2 * blockIdx.x] = all.x;
    a.work[2 * blockIdx.x + 1] = all.y;
  }
}

__global__ void __launch_bounds__(kThreads) join_sums(TensorMeansArguments a) {
  double plain = 0, product = 0;
  for (unsigned i = threadIdx.x; i < kMeansBlocks; i += kThreads) {
    plain += a.work[2 * i];
    product += a.work[2 * i + 1];
  }
  const double2 all = sum_block(plain, product);
  if (threadIdx.x == 0) {
    *a.plain = static_cast<float>(all.x / static_cast<double>(a.n));
    *a.product = static_cast<float>(all.y / static_cast<double>(a.n));
  }
}

__global__ void __launch_bounds__(kThreads) normalise_kernel(NormaliseArguments a) {
  const float mean = *a.mean, factor = *a.factor;
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  if (at >= a.n) return;
  Vector x = Vector::load(a.x, at, a.n);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x.value[i] = (x.value[i] - mean) * factor;
  x.store(a.y, at, a.n);
}

__global__ void __launch_bounds__(kThreads) gradient_kernel(NormaliseGradientArguments a) {
  const float mean = *a.mean, slope = *a.slope, shift = *a.shift, factor = *a.factor;
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  if (at >= a.n) return;
  const Vector x = Vector::load(a.x, at, a.n);
  Vector g = Vector::load(a.g, at, a.n);
#pragma unroll
  for (int i = 0; i < kVector; ++i) g.value[i] = ((x.value[i] - mean) * slope + g.value[i] - shift) * factor;
  g.store(a.dx, at, a.n);
}

unsigned blocks_for(std::int64_t n) {
  constexpr std::int64_t kEach = kThreads * kVector;
  return static_cast<unsigned>((n + kEach - 1) / kEach);
}
cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

void tensor_means_on_gpu(const TensorMeansArguments& a, void* stream) {
  partial_sums<<<kMeansBlocks, kThreads, 0, as_stream(stream)>>>(a);
  join_sums<<<1, kThreads, 0, as_stream(stream)>>>(a);
}

void normalise_on_gpu(const NormaliseArguments& a, void* stream) {
  normalise_kernel<<<blocks_for(a.n), kThreads, 0, as_stream(stream)>>>(a);
}

void normalise_gradient_on_gpu(const NormaliseGradientArguments& a, void* stream) {
  gradient_kernel<<<blocks_for(a.n), kThreads, 0, as_stream(stream)>>>(a);
}

}  // namespace lowtide
