// The quantiser on a GPU: two small kernels for a range, one pass each to encode and decode. No host reads.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "lowtide/quant/extremes.h"
#include "lowtide/quant/noise.h"
#include "lowtide/quant/quantizer_kernels.h"
#include "lowtide/quant/vector.cuh"

namespace lowtide {
namespace {

constexpr int kThreads = 256;
// A whole-tensor range is found by this many blocks: 132 multiprocessors of an H200 hold 8 blocks of 256
// threads.
constexpr int kRangeBlocks = 1024;
static_assert(kRangeBlocks * sizeof(Extremes) <= kRangeScratchBytes);

// Joins what the threads of a block hold; valid in thread 0.
__device__ Extremes join_block(const Extremes& mine) {
  __shared__ Extremes shared[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) shared[thread].join(shared[thread + half]);
  }
  return shared[0];
}

__device__ Extremes block_extremes(const float* x, std::int64_t begin, std::int64_t end,
                                   std::int64_t stride) {
  Extremes mine = Extremes::of_none();
  for (std::int64_t i = begin; i < end; i += stride) mine.include(x[i]);
  return join_block(mine);
}

__device__ void store_range(const Extremes& extremes, float* min, float* range) {
  *min = extremes.least();
  *range = extremes.range();
}

__global__ void row_ranges(RangeArguments a) {
  const std::int64_t row = blockIdx.x;
  const Extremes extremes = block_extremes(a.x, row * a.length + threadIdx.x, (row + 1) * a.length, kThreads);
  if (threadIdx.x == 0) store_range(extremes, a.min + row, a.range + row);
}

__global__ void partial_extremes(const float* x, std::int64_t n, Extremes* partial) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const Extremes extremes = block_extremes(x, first, n, static_cast<std::int64_t>(gridDim.x) * kThreads);
  if (threadIdx.x == 0) partial[blockIdx.x] = extremes;
}

__global__ void join_extremes(const Extremes* partial, int n, float* min, float* range) {
  Extremes mine = Extremes::of_none();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) mine.join(partial[i]);
  mine = join_block(mine);
  if (threadIdx.x == 0) store_range(mine, min, range);
}

void measure_range(const RangeArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  if (a.rows > 1) {
    row_ranges<<<static_cast<unsigned>(a.rows), kThreads, 0, stream>>>(a);
    return;
  }
  const int blocks =
      static_cast<int>(std::min<std::int64_t>(kRangeBlocks, (a.length + kThreads - 1) / kThreads));
  auto* partial = static_cast<Extremes*>(a.scratch);
  partial_extremes<<<blocks, kThreads, 0, stream>>>(a.x, a.length, partial);
  join_extremes<<<1, kThreads, 0, stream>>>(partial, blocks, a.min, a.range);
}

template <typename Code>
__global__ void encode_kernel(EncodeArguments a, NoiseCounter counter, bool drawn) {
  const std::int64_t n = a.rows * a.length;
  const float top = a.bits.top();
  counter = counter_at(counter, a.device_step);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    const std::int64_t row = a.rows > 1 ? i / a.length : 0;
    const float scale = scale_of(a.range[row], top);
    if (i == row * a.length) a.scale[row] = scale;
    // Explicit roundings: a fused multiply-add would give other codes than the CPU.
    float v = __fdiv_rn(__fsub_rn(a.x[i], a.min[row]), scale);
    if (drawn) v = __fadd_rn(v, noise_at(counter, i));
    if (a.noise) v = __fadd_rn(v, a.noise[i]);
    v = v < 0.0f ? 0.0f : v;
    v = v > top ? top : v;
    static_cast<Code*>(a.code)[i] = static_cast<Code>(__float2int_rn(v));
  }
}

// One range, at most eight bits, no noise: what most activations are.
__global__ void encode_plainly(EncodeArguments a) {
  const Encoder encoder = Encoder::make(a.min, a.range, a.bits, a.scale);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads * kVector;
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  for (; at < a.length; at += stride) {
    const Vector x = Vector::load(a.x, at, a.length);
    unsigned code[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) code[i] = encoder.code(x.value[i]);
    store_codes(code, static_cast<std::uint8_t*>(a.code), at, a.length);
  }
}

constexpr int kRangesPerLaunch = 64;  // of 4 KiB of arguments
struct TrackedRanges {
  TrackedRange range[kRangesPerLaunch];
  int count;
};

__global__ void track_kernel(TrackedRanges ranges) {
  if (static_cast<int>(threadIdx.x) < ranges.count) ranges.range[threadIdx.x].move();
}

void track(const TrackedRange* ranges, int count, void* opaque_stream) {
  for (int first = 0; first < count; first += kRangesPerLaunch) {
    TrackedRanges some{};
    some.count = std::min(kRangesPerLaunch, count - first);
    std::copy_n(ranges + first, some.count, some.range);
    track_kernel<<<1, kRangesPerLaunch, 0, static_cast<cudaStream_t>(opaque_stream)>>>(some);
  }
}

template <typename Code>
__global__ void decode_kernel(DecodeArguments a) {
  const std::int64_t n = a.rows * a.length;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    const std::int64_t row = a.rows > 1 ? i / a.length : 0;
    const float code = static_cast<float>(static_cast<const Code*>(a.code)[i]);
    a.value[i] = __fadd_rn(__fmul_rn(code, a.scale[row]), a.offset[row]);
  }
}

unsigned blocks_for(std::int64_t n) {
  return static_cast<unsigned>(std::min<std::int64_t>((n + kThreads - 1) / kThreads, 132 * 32));
}

void encode(const EncodeArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  const NoiseCounter counter = a.counter ? *a.counter : NoiseCounter{};
  if (a.rows == 1 && a.bits.bits <= 8 && a.counter == nullptr && a.noise == nullptr) {
    encode_plainly<<<blocks_for((a.length + kVector - 1) / kVector), kThreads, 0, stream>>>(a);
    return;
  }
  const unsigned blocks = blocks_for(a.rows * a.length);
  if (a.bits.bits <= 8) {
    encode_kernel<std::uint8_t><<<blocks, kThreads, 0, stream>>>(a, counter, a.counter != nullptr);
  } else {
    encode_kernel<std::int32_t><<<blocks, kThreads, 0, stream>>>(a, counter, a.counter != nullptr);
  }
}

void decode(const DecodeArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  const unsigned blocks = blocks_for(a.rows * a.length);
  if (a.bits <= 8) {
    decode_kernel<std::uint8_t><<<blocks, kThreads, 0, stream>>>(a);
  } else {
    decode_kernel<std::int32_t><<<blocks, kThreads, 0, stream>>>(a);
  }
}

}  // namespace

const QuantizerKernels kCudaQuantizer{measure_range, encode, decode, track};

}  // namespace lowtide
