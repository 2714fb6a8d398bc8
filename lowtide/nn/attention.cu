#include <cuda_runtime.h>

#include <cmath>

#include "lowtide/base/cuda_launch.h"
#include "lowtide/nn/attention_kernels.h"
#include "lowtide/nn/warp_rows.cuh"
#include "lowtide/quant/vector.cuh"

namespace lowtide {
namespace {

__device__ std::int64_t row_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarp;
}

template <int kNumbers>
__global__ void __launch_bounds__(kThreads) attend_kernel(AttendArguments a) {
  const std::int64_t row = row_of_warp();
  if (row >= a.items * a.heads * a.rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t first = row * a.length;
  const float* mask = a.mask + row / (a.heads * a.rows) * a.mask_item + row % a.rows * a.mask_row;
  float x[kNumbers], most = -INFINITY;
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) {
    const int column = column_of(lane, j);
    x[j] = column < a.length ? __fadd_rn(__fmul_rn(a.scores[first + column], a.factor), mask[column])
                             : -INFINITY;
    most = fmaxf(most, x[j]);
  }
  most = most_of_warp(most);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) {
    x[j] = column_of(lane, j) < a.length ? expf(x[j] - most) : 0.0f;
    sum += x[j];
  }
  const float inverse = 1.0f / sum_of_warp(sum);
  float factor[kNumbers];
  draw_factors(a.dropout, a.length, row, lane, factor);
  Extremes extremes = Extremes::of_none();
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) {
    const int column = column_of(lane, j);
    if (column >= a.length) continue;
    const float p = x[j] * inverse;
    a.p[first + column] = p;
    const float weight = p * factor[j];
    if (a.weights != a.p) a.weights[first + column] = weight;
    extremes.include(weight);
  }
  extremes = join_warp(extremes);
  if (lane != 0) return;
  a.min[row] = extremes.least();
  a.range[row] = extremes.range();
}

// With the gradient g at p, that at a score is factor · p (g - Σ g p).
template <int kNumbers>
__global__ void __launch_bounds__(kThreads) attend_gradient_kernel(AttendGradientArguments a) {
  const std::int64_t row = row_of_warp();
  if (row >= a.of.items * a.of.heads * a.of.rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp), length = a.of.length;
  const std::int64_t first = row * length;
  float p[kNumbers], g[kNumbers], factor[kNumbers];
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) {
    const int column = column_of(lane, j);
    p[j] = column < length ? a.p[first + column] : 0.0f;
    g[j] = column < length ? a.gradient[first + column] : 0.0f;
  }
  draw_factors(a.of.dropout, length, row, lane, factor);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) {
    if (column_of(lane, j) >= length) continue;
    g[j] *= factor[j];
    sum += g[j] * p[j];
  }
  sum = sum_of_warp(sum);
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) {
    const int column = column_of(lane, j);
    if (column < length) a.result[first + column] = (g[j] - sum) * p[j] * a.of.factor;
  }
}

unsigned blocks_of(const AttendArguments& a) {
  return static_cast<unsigned>((a.items * a.heads * a.rows + kRowsPerBlock - 1) / kRowsPerBlock);
}

// ---- Codes by head -------------------------------------------------------------------------------------------------

__device__ void include_four(Extremes& extremes, const float4& x) {
  extremes.include(x.x);
  extremes.include(x.y);
  extremes.include(x.z);
  extremes.include(x.w);
}

// Some lanes a row of units, four rows at once, in the order in which they lie in memory.
constexpr int kRowsAtOnce = 4;
template <int kLanes>
__global__ void __launch_bounds__(kThreads) encode_head_rows(EncodeHeadsArguments a) {
  constexpr int kUnits = kLanes * kFour, kRowsOfBlock = kThreads / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t rows = a.items * a.length * a.heads;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kRowsAtOnce * kRowsOfBlock + threadIdx.x / kLanes;
  float4 x[kRowsAtOnce];
#pragma unroll
  for (int k = 0; k < kRowsAtOnce; ++k)
    x[k] = four_of(a.x, (first + k * kRowsOfBlock) * kUnits + lane * kFour, rows * kUnits);
  const float top = a.bits.top();
#pragma unroll
  for (int k = 0; k < kRowsAtOnce; ++k) {
    Extremes extremes = Extremes::of_none();
    include_four(extremes, x[k]);
    for (int apart = kLanes / 2; apart > 0; apart /= 2)
      extremes.join({__shfl_xor_sync(kAll, extremes.min, apart), __shfl_xor_sync(kAll, extremes.max, apart),
                     __shfl_xor_sync(kAll, extremes.poison, apart)});
    const std::int64_t row = first + k * kRowsOfBlock;
    if (row >= rows) continue;
    const Encoder encoder = Encoder::make(extremes.least(), extremes.range(), top);
    const std::int64_t head = row % a.heads, place = row / a.heads, item = place / a.length,
                       position = place % a.length;
    const std::int64_t to = (item * a.heads + head) * a.length + position;
    if (lane == 0) {
      a.min[to] = encoder.min;
      a.scale[to] = encoder.scale;
    }
    *reinterpret_cast<unsigned*>(a.code + to * kUnits + lane * kFour) =
        encoder.four_codes(x[k].x, x[k].y, x[k].z, x[k].w);
  }
}

// A block a head of an item, which is transposed on its way through shared memory; then a warp a unit.
template <int kLanes>
__global__ void __launch_bounds__(kThreads) encode_head_columns(EncodeHeadsArguments a) {
  constexpr int kUnits = kLanes * kFour, kNumbers = kMostHeadLength / kWarp;
  extern __shared__ float tile[];
  const int pitch = a.length + 1;
  const std::int64_t matrix = blockIdx.x, item = matrix / a.heads, head = matrix % a.heads;
  const float* x = a.x + (item * a.length * a.heads + head) * kUnits;
  const int unit = static_cast<int>(threadIdx.x) % kLanes * kFour;
#pragma unroll 4
  for (int position = static_cast<int>(threadIdx.x) / kLanes; position < a.length;
       position += kThreads / kLanes) {
    const float4 four = __ldg(
        reinterpret_cast<const float4*>(x + static_cast<std::int64_t>(position) * a.heads * kUnits + unit));
    tile[unit * pitch + position] = four.x;
    tile[(unit + 1) * pitch + position] = four.y;
    tile[(unit + 2) * pitch + position] = four.z;
    tile[(unit + 3) * pitch + position] = four.w;
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const float top = a.bits.top();
#pragma unroll 2
  for (int row = static_cast<int>(threadIdx.x) / kWarp; row < kUnits; row += kRowsPerBlock) {
    float number[kNumbers];
    Extremes extremes = Extremes::of_none();
#pragma unroll
    for (int k = 0; k < kNumbers; ++k) {
      const int position = lane + k * kWarp;
      if (position >= a.length) break;
      number[k] = tile[row * pitch + position];
      extremes.include(number[k]);
    }
    extremes = join_warp(extremes);
    const Encoder encoder = Encoder::make(extremes.least(), extremes.range(), top);
    const std::int64_t to = matrix * kUnits + row;
    if (lane == 0) {
      a.min[to] = encoder.min;
      a.scale[to] = encoder.scale;
    }
#pragma unroll
    for (int k = 0; k < kNumbers; ++k) {
      const int position = lane + k * kWarp;
      if (position < a.length)
        a.code[to * a.length + position] = static_cast<std::uint8_t>(encoder.code(number[k]));
    }
  }
}

template <int kLanes>
void encode_heads(const EncodeHeadsArguments& a, cudaStream_t stream) {
  if (a.transposed) {
    const std::size_t bytes = sizeof(float) * kLanes * kFour * static_cast<std::size_t>(a.length + 1);
    cudaFuncSetAttribute(encode_head_columns<kLanes>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(bytes));
    encode_head_columns<kLanes><<<static_cast<unsigned>(a.items * a.heads), kThreads, bytes, stream>>>(a);
    return;
  }
  constexpr int kRowsOfBlock = kRowsAtOnce * kThreads / kLanes;
  const std::int64_t rows = a.items * a.length * a.heads;
  encode_head_rows<kLanes>
      <<<static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock), kThreads, 0, stream>>>(a);
}

}  // namespace

void attend_on_gpu(const AttendArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  if (a.length <= kNoiseBlock) {
    attend_kernel<4><<<blocks_of(a), kThreads, 0, stream>>>(a);
  } else if (a.length <= 4 * kNoiseBlock) {
    attend_kernel<16><<<blocks_of(a), kThreads, 0, stream>>>(a);
  } else {
    attend_kernel<32><<<blocks_of(a), kThreads, 0, stream>>>(a);
  }
  check_launch("attention's weights");
}

void attend_gradient_on_gpu(const AttendGradientArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  if (a.of.length <= kNoiseBlock) {
    attend_gradient_kernel<4><<<blocks_of(a.of), kThreads, 0, stream>>>(a);
  } else if (a.of.length <= 4 * kNoiseBlock) {
    attend_gradient_kernel<16><<<blocks_of(a.of), kThreads, 0, stream>>>(a);
  } else {
    attend_gradient_kernel<32><<<blocks_of(a.of), kThreads, 0, stream>>>(a);
  }
  check_launch("the gradient of attention's weights");
}

void encode_heads_on_gpu(const EncodeHeadsArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  if (a.units == 32) encode_heads<8>(a, stream);
  if (a.units == 64) encode_heads<16>(a, stream);
  if (a.units == 128) encode_heads<32>(a, stream);
  check_launch("codes by head");
}

}  // namespace lowtide
