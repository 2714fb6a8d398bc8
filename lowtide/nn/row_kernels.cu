#include <cuda_runtime.h>

#include "lowtide/base/cuda_launch.h"
#include "lowtide/nn/row_kernels.h"
#include "lowtide/quant/range.cuh"
#include "lowtide/quant/vector.cuh"

namespace lowtide {
namespace {

constexpr int kWarp = 32, kThreads = 256, kWarps = kThreads / kWarp, kFour = 4;

// A warp a row, which stays in its registers.
template <int kFours>
__global__ void __launch_bounds__(kThreads) round_rows_kernel(RoundRowsArguments a) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= a.rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const float* x = a.x + row * a.columns;
  float4 four[kFours];
  Extremes extremes = Extremes::of_none();
#pragma unroll
  for (int k = 0; k < kFours; ++k) {
    const int column = (k * kWarp + lane) * kFour;
    if (column >= a.columns) break;
    four[k] = __ldg(reinterpret_cast<const float4*>(x + column));
    extremes.include(four[k].x);
    extremes.include(four[k].y);
    extremes.include(four[k].z);
    extremes.include(four[k].w);
  }
  extremes = join_warp(extremes);
  const Encoder encoder = Encoder::make(extremes.least(), extremes.range(), a.bits.top());
  const float factor = a.factor == nullptr ? 1.0f : a.factor[row];
  const float scale = __fmul_rn(encoder.scale, factor), offset = __fmul_rn(encoder.min, factor);
  const auto rounded = [&](float v, float bias) {
    const float value = __fadd_rn(__fmul_rn(static_cast<float>(encoder.code(v)), scale), offset);
    return __fadd_rn(value, bias);
  };
#pragma unroll
  for (int k = 0; k < kFours; ++k) {
    const int column = (k * kWarp + lane) * kFour;
    if (column >= a.columns) break;
    const float4 bias =
        a.bias == nullptr ? float4{} : __ldg(reinterpret_cast<const float4*>(a.bias + column));
    *reinterpret_cast<float4*>(a.y + row * a.columns + column) =
        make_float4(rounded(four[k].x, bias.x), rounded(four[k].y, bias.y), rounded(four[k].z, bias.z),
                    rounded(four[k].w, bias.w));
  }
}

// A block some rows of 128 columns: a warp's lanes have four neighbouring ones each.
constexpr int kTileColumns = kWarp * kFour;

__global__ void __launch_bounds__(kThreads) sum_codes_kernel(SumCodesArguments a) {
  __shared__ float joined[kWarps][kTileColumns];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column = static_cast<int>(blockIdx.y) * kTileColumns + lane * kFour;
  const int count = min(kFour, a.columns - column);
  const bool whole = a.columns % kFour == 0;
  const std::int64_t first = a.rows * blockIdx.x / gridDim.x, last = a.rows * (blockIdx.x + 1) / gridDim.x;
  float sum[kFour]{};
#pragma unroll 4
  for (std::int64_t row = first + warp; row < last; row += kWarps) {
    if (count <= 0) break;
    const std::int64_t at = row * a.columns + column;
    std::uint8_t code[kFour]{};
    if (whole) {
      *reinterpret_cast<unsigned*>(code) = __ldg(reinterpret_cast<const unsigned*>(a.code + at));
    } else {
      for (int i = 0; i < count; ++i) code[i] = a.code[at + i];
    }
    const float scale = a.scale[a.by_row ? row : 0], offset = a.offset[a.by_row ? row : 0];
    const float factor = a.factor == nullptr ? 1.0f : a.factor[row];
    float value[kFour];
#pragma unroll
    for (int i = 0; i < kFour; ++i) {
      value[i] = __fadd_rn(__fmul_rn(static_cast<float>(code[i]), scale), offset);
      sum[i] += value[i];
      value[i] *= factor;
    }
    if (a.y == nullptr) continue;
    if (whole) {
      *reinterpret_cast<float4*>(a.y + at) = make_float4(value[0], value[1], value[2], value[3]);
    } else {
      for (int i = 0; i < count; ++i) a.y[at + i] = value[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kFour; ++i) joined[warp][lane * kFour + i] = sum[i];
  __syncthreads();
  const int mine = static_cast<int>(blockIdx.y) * kTileColumns + static_cast<int>(threadIdx.x);
  if (threadIdx.x >= kTileColumns || mine >= a.columns) return;
  float total = 0;
  for (int i = 0; i < kWarps; ++i) total += joined[i][threadIdx.x];
  a.partial[static_cast<std::int64_t>(blockIdx.x) * a.columns + mine] = total;
}

// A block 32 columns: its warps share out the parts, and are joined in their order.
__global__ void __launch_bounds__(kThreads)
    join_parts_kernel(const float* partial, int parts, int columns, float* sum_of_all) {
  __shared__ double joined[kWarps][kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column = static_cast<int>(blockIdx.x) * kWarp + lane;
  double sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int part = warp; part < parts; part += kWarps)
      sum += static_cast<double>(partial[static_cast<std::int64_t>(part) * columns + column]);
  }
  joined[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  double total = 0;
  for (int i = 0; i < kWarps; ++i) total += joined[i][lane];
  sum_of_all[column] = static_cast<float>(total);
}

}  // namespace

void round_rows_on_gpu(const RoundRowsArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  const auto blocks = static_cast<unsigned>((a.rows + kWarps - 1) / kWarps);
  if (a.columns <= kTileColumns) {
    round_rows_kernel<1><<<blocks, kThreads, 0, stream>>>(a);
  } else if (a.columns <= 4 * kTileColumns) {
    round_rows_kernel<4><<<blocks, kThreads, 0, stream>>>(a);
  } else if (a.columns <= 8 * kTileColumns) {
    round_rows_kernel<8><<<blocks, kThreads, 0, stream>>>(a);
  } else {
    round_rows_kernel<32><<<blocks, kThreads, 0, stream>>>(a);
  }
  check_launch("rounded rows");
}

void sum_codes_on_gpu(const SumCodesArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  const int parts = sum_parts(a.rows);
  const dim3 tiles(static_cast<unsigned>(parts),
                   static_cast<unsigned>((a.columns + kTileColumns - 1) / kTileColumns));
  sum_codes_kernel<<<tiles, kThreads, 0, stream>>>(a);
  check_launch("sums of an error's codes");
  join_parts_on_gpu(a.partial, parts, a.columns, a.sum, stream);
}

void join_parts_on_gpu(const float* partial, int parts, int columns, float* sum, void* stream) {
  join_parts_kernel<<<static_cast<unsigned>((columns + kWarp - 1) / kWarp), kThreads, 0,
                      static_cast<cudaStream_t>(stream)>>>(partial, parts, columns, sum);
  check_launch("sums of parts");
}

}  // namespace lowtide
