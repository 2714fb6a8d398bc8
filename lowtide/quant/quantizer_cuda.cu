// The quantiser on a GPU: two small kernels for a range, one pass each to encode and decode. No host reads.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "lowtide/base/cuda_launch.h"
#include "lowtide/quant/extremes.h"
#include "lowtide/quant/noise.h"
#include "lowtide/quant/noise_lanes.cuh"
#include "lowtide/quant/quantizer_kernels.h"
#include "lowtide/quant/range.cuh"
#include "lowtide/quant/vector.cuh"

namespace lowtide {
namespace {

constexpr int kThreads = kRangeThreads, kWarp = kRangeWarp, kWarps = kThreads / kWarp;
static_assert(kRangeBlocks * sizeof(Extremes) <= kRangeScratchBytes);

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

// Rows too short to keep a block busy: a warp each.
constexpr std::int64_t kShortRow = 2048;

__device__ bool in_fours(const float* x, std::int64_t length) {
  return length % 4 == 0 && reinterpret_cast<std::uintptr_t>(x) % sizeof(float4) == 0;
}

__device__ void include_four(Extremes& extremes, const float* x) {
  const float4 four = __ldg(reinterpret_cast<const float4*>(x));
  extremes.include(four.x);
  extremes.include(four.y);
  extremes.include(four.z);
  extremes.include(four.w);
}

__global__ void __launch_bounds__(kThreads) short_row_ranges(RangeArguments a) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= a.rows) return;
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  const float* x = a.x + row * a.length;
  Extremes mine = Extremes::of_none();
  if (in_fours(a.x, a.length)) {
    for (std::int64_t i = 4 * lane; i < a.length; i += 4 * kWarp) include_four(mine, x + i);
  } else {
    for (std::int64_t i = lane; i < a.length; i += kWarp) mine.include(x[i]);
  }
  mine = join_warp(mine);
  if (lane == 0) store_range(mine, a.min + row, a.range + row);
}

// A block a position: the range over all items, for the row of each. Several loads of a thread are on their way at once.
template <int kBlock>
__global__ void __launch_bounds__(kBlock) position_ranges(PositionArguments a) {
  const std::int64_t position = blockIdx.x;
  const bool fours = in_fours(a.x, a.length);
  const auto in_row = static_cast<std::uint32_t>(fours ? a.length / 4 : a.length), step = fours ? 4u : 1u;
  const std::uint32_t n = static_cast<std::uint32_t>(a.items) * in_row;
  Extremes mine = Extremes::of_none();
#pragma unroll 4
  for (std::uint32_t i = threadIdx.x; i < n; i += kBlock) {
    const float* x = a.x + (i / in_row * a.positions + position) * a.length + i % in_row * step;
    if (fours) {
      include_four(mine, x);
    } else {
      mine.include(*x);
    }
  }
  __shared__ Extremes all;
  mine = join_block(mine);
  if (threadIdx.x == 0) all = mine;
  __syncthreads();
  for (std::int64_t item = threadIdx.x; item < a.items; item += kBlock)
    store_range(all, a.min + item * a.positions + position, a.range + item * a.positions + position);
}

__global__ void __launch_bounds__(kThreads)
    partial_extremes(const float* x, std::int64_t n, Extremes* partial) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t fours = in_fours(x, 4) ? n / 4 : 0;
  Extremes mine = Extremes::of_none();
#pragma unroll 4
  for (std::int64_t i = first; i < fours; i += stride) include_four(mine, x + 4 * i);
  for (std::int64_t i = 4 * fours + first; i < n; i += stride) mine.include(x[i]);
  mine = join_block(mine);
  if (threadIdx.x == 0) partial[blockIdx.x] = mine;
}

__global__ void join_extremes(const Extremes* partial, int n, float* min, float* range) {
  Extremes mine = Extremes::of_none();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) mine.join(partial[i]);
  mine = join_block(mine);
  if (threadIdx.x == 0) store_range(mine, min, range);
}

void measure_range(const RangeArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  if (a.rows > 1 && a.length <= kShortRow) {
    short_row_ranges<<<static_cast<unsigned>((a.rows + kWarps - 1) / kWarps), kThreads, 0, stream>>>(a);
    return check_launch("ranges of short rows");
  }
  if (a.rows > 1) {
    row_ranges<<<static_cast<unsigned>(a.rows), kThreads, 0, stream>>>(a);
    return check_launch("ranges of rows");
  }
  const int blocks =
      static_cast<int>(std::min<std::int64_t>(kRangeBlocks, (a.length + kThreads - 1) / kThreads));
  auto* partial = static_cast<Extremes*>(a.scratch);
  partial_extremes<<<blocks, kThreads, 0, stream>>>(a.x, a.length, partial);
  check_launch("a range");
  join_extremes_on_gpu(partial, blocks, a.min, a.range, stream);
}

// i / length; numbers of 32 bits are divided in a fraction of the time.
__device__ std::int64_t quotient(std::int64_t i, std::int64_t length, std::int64_t n) {
  return n <= 0xffffffff ? static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(length) : i / length;
}

// Codes of more than eight bits.
__global__ void encode_wide(EncodeArguments a, NoiseCounter counter, bool drawn) {
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
    static_cast<std::int32_t*>(a.code)[i] = __float2int_rn(v);
  }
}

// At most eight bits, ranges by row, no noise, rows of whole vectors.
__global__ void __launch_bounds__(kThreads) encode_rows_plainly(EncodeArguments a) {
  const std::int64_t n = a.rows * a.length,
                     stride = static_cast<std::int64_t>(gridDim.x) * kThreads * kVector;
  const float top = a.bits.top();
  std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  for (; at < n; at += stride) {
    const std::int64_t row = quotient(at, a.length, n);
    const Encoder encoder = Encoder::make(a.min[row], a.range[row], top);
    if (at == row * a.length) a.scale[row] = encoder.scale;
    const Vector x = Vector::load(a.x, at, n);
    unsigned code[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) code[i] = encoder.code(x.value[i]);
    store_codes(code, static_cast<std::uint8_t*>(a.code), at, n);
  }
}

// At most eight bits, drawn noise, blocks of noise that lie in a row each.
__global__ void __launch_bounds__(kThreads) encode_noisy_blocks(EncodeArguments a, NoiseCounter counter) {
  const std::int64_t n = a.rows * a.length, blocks = (n + kNoiseBlock - 1) / kNoiseBlock;
  const float top = a.bits.top();
  counter = counter_at(counter, a.device_step);
  const int thread = static_cast<int>(threadIdx.x) % NoiseLanes::kThreads;
  constexpr int kBlocksAtOnce = kThreads / NoiseLanes::kThreads;
  std::int64_t block =
      static_cast<std::int64_t>(blockIdx.x) * kBlocksAtOnce + threadIdx.x / NoiseLanes::kThreads;
  for (; block < blocks; block += static_cast<std::int64_t>(gridDim.x) * kBlocksAtOnce) {
    const std::int64_t row = a.rows > 1 ? quotient(block * kNoiseBlock, a.length, n) : 0;
    const Encoder encoder = Encoder::make(a.min[row], a.range[row], top);
    if (thread == 0 && block * kNoiseBlock == row * a.length) a.scale[row] = encoder.scale;
    const std::int64_t first = block * kNoiseBlock + thread * NoiseLanes::kFour;
    float4 x[kNoiseHalves];
#pragma unroll
    for (int half = 0; half < kNoiseHalves; ++half) x[half] = four_of(a.x, first + half * kNoiseLanes, n);
    const NoiseLanes noise = NoiseLanes::draw(counter, block, thread);
#pragma unroll
    for (int half = 0; half < kNoiseHalves; ++half) {
      const unsigned codes = Encoder::four_bytes(
          encoder.rounded(x[half].x, noise.at(half, 0)), encoder.rounded(x[half].y, noise.at(half, 1)),
          encoder.rounded(x[half].z, noise.at(half, 2)), encoder.rounded(x[half].w, noise.at(half, 3)));
      store_four_codes(codes, static_cast<std::uint8_t*>(a.code), first + half * kNoiseLanes, n);
    }
  }
}

// At most eight bits, with noise or ranges by row. A thread takes the eight numbers of a block of 128 that share one block of
// Philox's words: neighbouring threads then have neighbouring numbers, and nothing is drawn twice.
__global__ void __launch_bounds__(kThreads)
    encode_bytes(EncodeArguments a, NoiseCounter counter, bool drawn) {
  const std::int64_t n = a.rows * a.length, blocks = (n + kNoiseBlock - 1) / kNoiseBlock;
  const float top = a.bits.top();
  counter = counter_at(counter, a.device_step);
  const bool row_a_block = a.rows == 1 || a.length % kNoiseBlock == 0;
  const auto lane = threadIdx.x % kNoiseLanes;
  constexpr int kBlocksAtOnce = kThreads / kNoiseLanes;
  std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kBlocksAtOnce + threadIdx.x / kNoiseLanes;
  for (; block < blocks; block += static_cast<std::int64_t>(gridDim.x) * kBlocksAtOnce) {
    Philox::Block words{};
    if (drawn)
      words =
          Philox::block(counter.key0, counter.key1, static_cast<std::uint32_t>(block) * kNoiseLanes + lane,
                        counter.c1, counter.c2, counter.c3);
    std::int64_t row = a.rows > 1 ? quotient(block * kNoiseBlock, a.length, n) : 0;
    Encoder encoder = Encoder::make(a.min[row], a.range[row], top);
#pragma unroll
    for (int half = 0; half < kNoiseHalves; ++half) {
      const std::int64_t i = block * kNoiseBlock + half * kNoiseLanes + lane;
      if (i >= n) break;
      if (!row_a_block) {
        row = quotient(i, a.length, n);
        encoder = Encoder::make(a.min[row], a.range[row], top);
      }
      if (i == row * a.length) a.scale[row] = encoder.scale;
      float noise = drawn ? noise_value(words.word[half / 2] >> (half % 2 * 16) & 0xffffu) : 0.0f;
      if (a.noise) noise = a.noise[i];
      static_cast<std::uint8_t*>(a.code)[i] = static_cast<std::uint8_t>(encoder.code(a.x[i], noise));
    }
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

// A thread a running range, which is moved by all that are to move it, in their order: by the thread of the first.
__global__ void track_kernel(TrackedRanges ranges) {
  const int first = static_cast<int>(threadIdx.x);
  if (first >= ranges.count) return;
  const float* mine = ranges.range[first].min;
  for (int i = 0; i < first; ++i) {
    if (ranges.range[i].min == mine) return;
  }
  for (int i = first; i < ranges.count; ++i) {
    if (ranges.range[i].min == mine) ranges.range[i].move();
  }
}

void track(const TrackedRange* ranges, int count, void* opaque_stream) {
  for (int first = 0; first < count; first += kRangesPerLaunch) {
    TrackedRanges some{};
    some.count = std::min(kRangesPerLaunch, count - first);
    std::copy_n(ranges + first, some.count, some.range);
    track_kernel<<<1, kRangesPerLaunch, 0, static_cast<cudaStream_t>(opaque_stream)>>>(some);
    check_launch("running ranges");
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
  const bool bytes = fits_bytes(a.bits), drawn = a.counter != nullptr;
  // A part of a tensor begins anywhere: an LSTM's hidden state lies in the states of all steps.
  const bool aligned = reinterpret_cast<std::uintptr_t>(a.x) % sizeof(float4) == 0,
             plain = bytes && aligned && !drawn && a.noise == nullptr;
  if (plain && a.rows == 1) {
    encode_plainly<<<blocks_for((a.length + kVector - 1) / kVector), kThreads, 0, stream>>>(a);
  } else if (plain && a.length % kVector == 0) {
    encode_rows_plainly<<<blocks_for(a.rows * a.length / kVector), kThreads, 0, stream>>>(a);
  } else if (bytes && drawn && aligned && (a.rows == 1 || a.length % kNoiseBlock == 0)) {
    const std::int64_t noise_blocks = (a.rows * a.length + kNoiseBlock - 1) / kNoiseBlock;
    encode_noisy_blocks<<<blocks_for(noise_blocks * NoiseLanes::kThreads), kThreads, 0, stream>>>(a, counter);
  } else if (bytes) {
    encode_bytes<<<blocks_for((a.rows * a.length + kNoiseHalves - 1) / kNoiseHalves), kThreads, 0, stream>>>(
        a, counter, drawn);
  } else {
    encode_wide<<<blocks_for(a.rows * a.length), kThreads, 0, stream>>>(a, counter, drawn);
  }
  check_launch("codes");
}

void decode(const DecodeArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  const unsigned blocks = blocks_for(a.rows * a.length);
  if (fits_bytes(a.bits)) {
    decode_kernel<std::uint8_t><<<blocks, kThreads, 0, stream>>>(a);
  } else {
    decode_kernel<std::int32_t><<<blocks, kThreads, 0, stream>>>(a);
  }
  check_launch("values of codes");
}

}  // namespace

void measure_positions_on_gpu(const PositionArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  constexpr int kManyThreads = 1024;  // where there are few positions, of much each
  const auto positions = static_cast<unsigned>(a.positions);
  if (a.items * a.length >= 8 * 4 * kManyThreads) {
    position_ranges<kManyThreads><<<positions, kManyThreads, 0, stream>>>(a);
  } else {
    position_ranges<kThreads><<<positions, kThreads, 0, stream>>>(a);
  }
  check_launch("ranges of positions");
}

void join_extremes_on_gpu(const void* partial, int count, float* min, float* range, void* stream) {
  join_extremes<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const Extremes*>(partial),
                                                                       count, min, range);
  check_launch("a range's end");
}

const QuantizerKernels kCudaQuantizer{measure_range, encode, decode, track};

}  // namespace lowtide
