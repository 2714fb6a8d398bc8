// An optimiser's step on a GPU: as many tensors a launch as its arguments hold, a block a chunk. No host reads.
#include <cuda_runtime.h>

#include <cmath>
#include <type_traits>

#include "lowtide/base/cuda_launch.h"
#include "lowtide/train/update_kernels.h"

namespace lowtide {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = kUpdateChunk / kThreads;
constexpr int kJoiningThreads = 1024;  // of the one block that sums what the chunks gave

constexpr int kArgumentBytes = 4096;  // of a kernel
constexpr int kOtherBytes = 96;       // of them, what a launch is given besides tensors, and gaps

// The tensors of a launch, with so many arrays each: a gradient, its parameter, the parameter's states.
template <int kArrays>
struct Tensors {
  static constexpr int kMost =
      (kArgumentBytes - kOtherBytes) /
      (kArrays * sizeof(float*) + sizeof(std::uint32_t) + sizeof(std::uint16_t) + sizeof(bool));

  float* array[kArrays][kMost];
  std::uint32_t end[kMost];   // the chunks of all tensors up to this one's last
  std::uint16_t tail[kMost];  // the length of its last chunk; the others are whole
  bool decays[kMost];
  int count;

  void clear() { count = 0; }
  bool full() const { return count == kMost; }
  std::uint32_t chunks() const { return count == 0 ? 0 : end[count - 1]; }

  void add(const ParameterArrays& item) {
    float* const arrays[] = {item.gradient, item.parameter, item.state[0], item.state[1]};
    for (int i = 0; i < kArrays; ++i) array[i][count] = arrays[i];
    end[count] = chunks() + static_cast<std::uint32_t>(item.chunks());
    tail[count] = static_cast<std::uint16_t>(item.n - (item.chunks() - 1) * kUpdateChunk);
    decays[count] = item.decays;
    ++count;
  }
};
static_assert(kUpdateChunk <= UINT16_MAX && kUpdateChunk % kThreads == 0);

// A launch is a struct of `tensors` and what else its kernel needs. Calls start(launch) with as many tensors as
// fit, until all have had their turn.
template <typename Launch, typename Start>
void for_each_launch(ParameterList parameters, Launch launch, const Start& start) {
  static_assert(sizeof(Launch) <= kArgumentBytes && std::is_trivially_copyable_v<Launch>);
  launch.tensors.clear();
  for (const ParameterArrays& item : parameters) {
    if (item.n == 0) continue;
    if (launch.tensors.full()) {
      start(launch);
      launch.tensors.clear();
    }
    launch.tensors.add(item);
  }
  if (launch.tensors.count > 0) start(launch);
}

struct Chunk {
  int tensor;
  std::int64_t begin;  // in the tensor
  int n;

  template <int kArrays>
  __device__ float* of(const Tensors<kArrays>& tensors, int array) const {
    return tensors.array[array][tensor] + begin;
  }
};

// The chunk of this block: its tensor is the first that ends beyond it.
template <int kArrays>
__device__ Chunk own_chunk(const Tensors<kArrays>& tensors) {
  const std::uint32_t block = blockIdx.x;
  int low = 0, high = tensors.count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (tensors.end[middle] > block) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const std::uint32_t first = low == 0 ? 0 : tensors.end[low - 1];
  const bool is_last = block + 1 == tensors.end[low];
  return {low, static_cast<std::int64_t>(block - first) * kUpdateChunk,
          is_last ? tensors.tail[low] : kUpdateChunk};
}

// Calls use(i, read(i)) for this thread's share of a chunk. All of it is read before any is used, so that a thread
// waits for memory once: the compiler cannot know that what is written is not what is read next.
template <typename Read, typename Use>
__device__ void for_own_numbers(int n, const Read& read, const Use& use) {
  decltype(read(0)) numbers[kPerThread];
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int i = static_cast<int>(threadIdx.x) + k * kThreads;
    if (i < n) numbers[k] = read(i);
  }
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int i = static_cast<int>(threadIdx.x) + k * kThreads;
    if (i < n) use(i, numbers[k]);
  }
}

__device__ double rate_of(const StepControl& control) {
  return control.parameters != nullptr ? control.parameters->rate : control.rate;
}

// Below, explicit roundings: a fused multiply-add would give other bits than the CPU.

struct SgdNumbers {
  float gradient, parameter, velocity;
};

struct SgdLaunch {
  Tensors<3> tensors;
  StepControl control;
  float momentum, decay;
};

__global__ void __launch_bounds__(kThreads) sgd_kernel(const __grid_constant__ SgdLaunch a) {
  if (*a.control.halted) return;
  const Chunk chunk = own_chunk(a.tensors);
  const float* gradient = chunk.of(a.tensors, 0);
  float *parameter = chunk.of(a.tensors, 1), *velocity = chunk.of(a.tensors, 2);
  const float rate = static_cast<float>(rate_of(a.control));
  const float decay = a.tensors.decays[chunk.tensor] ? a.decay : 0.0f;
  const auto read = [&](int i) { return SgdNumbers{gradient[i], parameter[i], velocity[i]}; };
  for_own_numbers(chunk.n, read, [&](int i, const SgdNumbers& x) {
    const float pushed = __fadd_rn(__fmul_rn(a.momentum, x.velocity), x.gradient);
    const float v = __fadd_rn(pushed, __fmul_rn(decay, x.parameter));
    velocity[i] = v;
    parameter[i] = __fsub_rn(x.parameter, __fmul_rn(rate, v));
  });
}

void sgd(const SgdArguments& a, ParameterList parameters, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  SgdLaunch all;
  all.control = a.control;
  all.momentum = static_cast<float>(a.momentum);
  all.decay = static_cast<float>(a.decay);
  for_each_launch(parameters, all, [&](const SgdLaunch& launch) {
    sgd_kernel<<<launch.tensors.chunks(), kThreads, 0, stream>>>(launch);
    check_launch("SGD");
  });
}

__global__ void begin_adam(AdamArguments a) {
  if (*a.control.halted) return;
  const double step = static_cast<double>(++*a.steps), rate = rate_of(a.control);
  const double correction1 = __dsub_rn(1.0, pow(a.beta1, step));
  const double correction2 = __dsub_rn(1.0, pow(a.beta2, step));
  a.factors->rate = static_cast<float>(__ddiv_rn(rate, correction1));
  a.factors->correction2 = static_cast<float>(correction2);
  a.factors->shrinkage = a.apart ? static_cast<float>(__dmul_rn(rate, a.decay)) : 0.0f;
}

struct AdamNumbers {
  float gradient, parameter, first, second;
};

struct AdamLaunch {
  Tensors<4> tensors;
  const bool* halted;
  const AdamFactors* factors;
  float keep1, take1, keep2, take2, epsilon, decay;
};

__global__ void __launch_bounds__(kThreads) adam_kernel(const __grid_constant__ AdamLaunch a) {
  if (*a.halted) return;
  const Chunk chunk = own_chunk(a.tensors);
  const float* gradient = chunk.of(a.tensors, 0);
  float* parameter = chunk.of(a.tensors, 1);
  float *first = chunk.of(a.tensors, 2), *second = chunk.of(a.tensors, 3);
  const AdamFactors factors = *a.factors;
  const bool decays = a.tensors.decays[chunk.tensor];
  const float decay = decays ? a.decay : 0.0f, shrinkage = decays ? factors.shrinkage : 0.0f;
  const auto read = [&](int i) { return AdamNumbers{gradient[i], parameter[i], first[i], second[i]}; };
  for_own_numbers(chunk.n, read, [&](int i, const AdamNumbers& x) {
    const float g = __fadd_rn(x.gradient, __fmul_rn(decay, x.parameter));
    const float kept = __fsub_rn(x.parameter, __fmul_rn(shrinkage, x.parameter));
    const float m = __fadd_rn(__fmul_rn(a.keep1, x.first), __fmul_rn(a.take1, g));
    const float v = __fadd_rn(__fmul_rn(a.keep2, x.second), __fmul_rn(__fmul_rn(a.take2, g), g));
    const float deviation = __fadd_rn(__fsqrt_rn(__fdiv_rn(v, factors.correction2)), a.epsilon);
    first[i] = m;
    second[i] = v;
    parameter[i] = __fsub_rn(kept, __fdiv_rn(__fmul_rn(factors.rate, m), deviation));
  });
}

void adam(const AdamArguments& a, ParameterList parameters, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  begin_adam<<<1, 1, 0, stream>>>(a);
  check_launch("Adam's beginning");
  AdamLaunch all;
  all.halted = a.control.halted;
  all.factors = a.factors;
  all.keep1 = static_cast<float>(a.beta1);
  all.take1 = static_cast<float>(1 - a.beta1);
  all.keep2 = static_cast<float>(a.beta2);
  all.take2 = static_cast<float>(1 - a.beta2);
  all.epsilon = static_cast<float>(a.epsilon);
  all.decay = a.apart ? 0.0f : static_cast<float>(a.decay);
  for_each_launch(parameters, all, [&](const AdamLaunch& launch) {
    adam_kernel<<<launch.tensors.chunks(), kThreads, 0, stream>>>(launch);
    check_launch("Adam");
  });
}

// Adds up what the threads of a block hold, always in the same order; valid in thread 0.
template <int kBlock>
__device__ double sum_of_block(double mine) {
  __shared__ double shared[kBlock];
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = mine;
  for (int half = kBlock / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) shared[thread] += shared[thread + half];
  }
  return shared[0];
}

struct NormLaunch {
  Tensors<1> tensors;
  double* partial;  // of this launch's first chunk
};

__global__ void __launch_bounds__(kThreads) sum_squares(const __grid_constant__ NormLaunch a) {
  const Chunk chunk = own_chunk(a.tensors);
  const float* gradient = chunk.of(a.tensors, 0);
  double sum = 0;
  const auto read = [&](int i) { return gradient[i]; };
  // Fused or not: a float's square is exact in double.
  for_own_numbers(chunk.n, read, [&](int, double g) { sum += g * g; });
  sum = sum_of_block<kThreads>(sum);
  if (threadIdx.x == 0) a.partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kJoiningThreads)
    join_squares(const double* __restrict__ partial, std::int64_t n, float* norm) {
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < n; i += kJoiningThreads) sum += partial[i];
  sum = sum_of_block<kJoiningThreads>(sum);
  if (threadIdx.x == 0) *norm = static_cast<float>(sqrt(sum));
}

void norm(const NormArguments& a, ParameterList parameters, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  NormLaunch all;
  all.partial = nullptr;
  std::int64_t done = 0;
  for_each_launch(parameters, all, [&](NormLaunch& launch) {
    launch.partial = a.partial + done;
    sum_squares<<<launch.tensors.chunks(), kThreads, 0, stream>>>(launch);
    check_launch("squares of gradients");
    done += launch.tensors.chunks();
  });
  join_squares<<<1, kJoiningThreads, 0, stream>>>(a.partial, done, a.norm);
  check_launch("the norm of gradients");
}

struct ClipLaunch {
  Tensors<1> tensors;
  const float* norm;
  float limit;
};

__global__ void __launch_bounds__(kThreads) clip_kernel(const __grid_constant__ ClipLaunch a) {
  const float norm = *a.norm;
  const float factor = __fdiv_rn(a.limit, __fadd_rn(norm, 1e-6f));
  if (!isfinite(norm) || factor >= 1.0f) return;
  const Chunk chunk = own_chunk(a.tensors);
  float* gradient = chunk.of(a.tensors, 0);
  const auto read = [&](int i) { return gradient[i]; };
  for_own_numbers(chunk.n, read, [&](int i, float g) { gradient[i] = g * factor; });
}

void clip(const ClipArguments& a, ParameterList parameters, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  ClipLaunch all;
  all.norm = a.norm;
  all.limit = static_cast<float>(a.limit);
  for_each_launch(parameters, all, [&](const ClipLaunch& launch) {
    clip_kernel<<<launch.tensors.chunks(), kThreads, 0, stream>>>(launch);
    check_launch("clipping");
  });
}

}  // namespace

const UpdateKernels kCudaUpdate{sgd, adam, norm, clip};

}  // namespace lowtide
