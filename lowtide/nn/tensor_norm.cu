#include <cuda_runtime.h>

#include <algorithm>

#include "lowtide/base/cuda_launch.h"
#include "lowtide/nn/tensor_norm_kernels.h"
#include "lowtide/quant/noise_lanes.cuh"
#include "lowtide/quant/vector.cuh"

namespace lowtide {
namespace {

constexpr int kThreads = 256, kFour = NoiseLanes::kFour;
constexpr int kMeansBlocks = kTensorMeansWork / 2;
constexpr int kNumbers = kNoiseHalves * kFour;  // of a thread in a block of noise

// ---- A thread's numbers ---------------------------------------------------------------------------------------------

// The blocks of noise of a tensor, which a grid goes through; four threads have one.
struct Walk {
  std::int64_t block, stride;
  int thread;

  __device__ static Walk start() {
    constexpr int kAtOnce = kThreads / NoiseLanes::kThreads;
    return {static_cast<std::int64_t>(blockIdx.x) * kAtOnce + threadIdx.x / NoiseLanes::kThreads,
            static_cast<std::int64_t>(gridDim.x) * kAtOnce,
            static_cast<int>(threadIdx.x) % NoiseLanes::kThreads};
  }
  __device__ bool inside(std::int64_t n) const { return block * kNoiseBlock < n; }
  __device__ std::int64_t at(int half) const {
    return block * kNoiseBlock + half * kNoiseLanes + thread * kFour;
  }
};

struct Numbers {
  float value[kNumbers];

  __device__ void load(const float* from, const Walk& walk, std::int64_t n) {
#pragma unroll
    for (int half = 0; half < kNoiseHalves; ++half) {
      const float4 four = four_of(from, walk.at(half), n);
      value[half * kFour] = four.x;
      value[half * kFour + 1] = four.y;
      value[half * kFour + 2] = four.z;
      value[half * kFour + 3] = four.w;
    }
  }
  __device__ void store(float* to, const Walk& walk, std::int64_t n) const {
#pragma unroll
    for (int half = 0; half < kNoiseHalves; ++half)
      store_four(make_float4(value[half * kFour], value[half * kFour + 1], value[half * kFour + 2],
                             value[half * kFour + 3]),
                 to, walk.at(half), n);
  }
  __device__ void clamp() {
#pragma unroll
    for (float& v : value) v = v < 0.0f ? 0.0f : v;  // a NaN stays one
  }
};

// Sets numbers to zero and scales the others, as dropout's kernel does.
class Drop {
 public:
  __device__ explicit Drop(const DropoutNoise& noise)
      : scale_(noise.scale),
        counter_(counter_at(noise.counter, noise.device_step)),
        encoder_(Encoder::make(0.0f, scale_, 1.0f)) {}

  __device__ void apply(const Walk& walk, Numbers& x) const {
    if (scale_ == 0.0f) return;
    const NoiseLanes noise = NoiseLanes::draw(counter_, walk.block, walk.thread);
#pragma unroll
    for (int half = 0; half < kNoiseHalves; ++half) {
#pragma unroll
      for (int i = 0; i < kFour; ++i)
        x.value[half * kFour + i] *=
            static_cast<float>(encoder_.code(1.0f, noise.at(half, i))) * encoder_.scale;
    }
  }

 private:
  float scale_;
  NoiseCounter counter_;
  Encoder encoder_;
};

// ---- Sums -----------------------------------------------------------------------------------------------------------

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

__device__ void leave(double plain, double product, double* work) {
  const double2 all = sum_block(plain, product);
  if (threadIdx.x != 0) return;
  work[2 * blockIdx.x] = all.x;
  work[2 * blockIdx.x + 1] = all.y;
}

// Valid in thread 0 of the one block that calls it.
__device__ double2 join_work(const double* work) {
  double plain = 0, product = 0;
  for (unsigned i = threadIdx.x; i < kMeansBlocks; i += kThreads) {
    plain += work[2 * i];
    product += work[2 * i + 1];
  }
  return sum_block(plain, product);
}

enum class Statistic { kMean, kVariance };

template <Statistic kStatistic>
__global__ void __launch_bounds__(kThreads) partial_statistics(TensorStatisticsArguments a) {
  const float mean = kStatistic == Statistic::kVariance ? *a.mean : 0.0f;
  double all = 0;
  for (Walk walk = Walk::start(); walk.inside(a.of.n); walk.block += walk.stride) {
    Numbers x;
    x.load(a.of.x, walk, a.of.n);
    if (a.of.relu) x.clamp();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {
      const float from_mean = x.value[i] - mean;
      const bool exists = walk.at(i / kFour) + i % kFour < a.of.n;
      sum += kStatistic == Statistic::kMean ? x.value[i] : exists ? from_mean * from_mean : 0.0f;
    }
    all += static_cast<double>(sum);
  }
  leave(all, 0, a.work);
}

template <Statistic kStatistic>
__global__ void __launch_bounds__(kThreads) join_statistics(TensorStatisticsArguments a) {
  const double2 all = join_work(a.work);
  if (threadIdx.x != 0) return;
  const double mean = all.x / static_cast<double>(a.of.n);
  if constexpr (kStatistic == Statistic::kMean) {
    *a.mean = static_cast<float>(mean);
  } else {
    *a.factor = static_cast<float>(1 / sqrt(mean + a.epsilon));
  }
}

__global__ void __launch_bounds__(kThreads) partial_gradients(NormaliseGradientArguments a) {
  const float mean = *a.mean;
  const Drop drop(a.of.dropout);
  double plain = 0, product = 0;
  for (Walk walk = Walk::start(); walk.inside(a.of.n); walk.block += walk.stride) {
    Numbers x, g;
    x.load(a.of.x, walk, a.of.n);
    g.load(a.gradient, walk, a.of.n);
    if (a.of.relu) x.clamp();
    drop.apply(walk, g);
    float sum = 0, sum_of_products = 0;
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {  // beyond the end, g is 0
      sum += g.value[i];
      sum_of_products += g.value[i] * (x.value[i] - mean);
    }
    plain += static_cast<double>(sum);
    product += static_cast<double>(sum_of_products);
  }
  leave(plain, product, a.work);
}

__global__ void __launch_bounds__(kThreads) join_gradients(NormaliseGradientArguments a) {
  const double2 all = join_work(a.work);
  if (threadIdx.x != 0) return;
  a.means[0] = static_cast<float>(all.x / static_cast<double>(a.of.n));
  a.means[1] = static_cast<float>(all.y / static_cast<double>(a.of.n));
}

// ---- Passes ---------------------------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kThreads) normalise_kernel(NormaliseArguments a) {
  const float mean = *a.mean, factor = *a.factor;
  const Drop drop(a.of.dropout);
  for (Walk walk = Walk::start(); walk.inside(a.of.n); walk.block += walk.stride) {
    Numbers x;
    x.load(a.of.x, walk, a.of.n);
    if (a.of.relu) x.clamp();
#pragma unroll
    for (float& v : x.value) v = (v - mean) * factor;
    drop.apply(walk, x);
    x.store(a.y, walk, a.of.n);
  }
}

// dx = ((x - mean) slope + g - mean(g)) factor
__global__ void __launch_bounds__(kThreads) gradient_kernel(NormaliseGradientArguments a) {
  const float mean = *a.mean, factor = *a.factor, gradient_mean = a.means[0],
              slope = -a.means[1] * factor * factor;
  const Drop drop(a.of.dropout);
  for (Walk walk = Walk::start(); walk.inside(a.of.n); walk.block += walk.stride) {
    Numbers x, g;
    x.load(a.of.x, walk, a.of.n);
    g.load(a.gradient, walk, a.of.n);
    drop.apply(walk, g);
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {
      const float from = x.value[i];
      const bool clamped = a.of.relu && from <= 0.0f;
      const float dx = ((clamped ? 0.0f : from) - mean) * slope + g.value[i] - gradient_mean;
      x.value[i] = clamped ? 0.0f : dx * factor;
    }
    x.store(a.dx, walk, a.of.n);
  }
}

unsigned blocks_for(std::int64_t n) {
  constexpr std::int64_t kEach = kThreads * kNumbers, kMost = 132 * 32;
  return static_cast<unsigned>(std::min((n + kEach - 1) / kEach, kMost));
}
cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

void tensor_statistics_on_gpu(const TensorStatisticsArguments& a, void* stream) {
  partial_statistics<Statistic::kMean><<<kMeansBlocks, kThreads, 0, as_stream(stream)>>>(a);
  join_statistics<Statistic::kMean><<<1, kThreads, 0, as_stream(stream)>>>(a);
  partial_statistics<Statistic::kVariance><<<kMeansBlocks, kThreads, 0, as_stream(stream)>>>(a);
  join_statistics<Statistic::kVariance><<<1, kThreads, 0, as_stream(stream)>>>(a);
  check_launch("a tensor norm's statistics");
}

void normalise_on_gpu(const NormaliseArguments& a, void* stream) {
  normalise_kernel<<<blocks_for(a.of.n), kThreads, 0, as_stream(stream)>>>(a);
  check_launch("a tensor norm");
}

void normalise_gradient_on_gpu(const NormaliseGradientArguments& a, void* stream) {
  partial_gradients<<<kMeansBlocks, kThreads, 0, as_stream(stream)>>>(a);
  join_gradients<<<1, kThreads, 0, as_stream(stream)>>>(a);
  gradient_kernel<<<blocks_for(a.of.n), kThreads, 0, as_stream(stream)>>>(a);
  check_launch("a tensor norm's gradient");
}

}  // namespace lowtide
