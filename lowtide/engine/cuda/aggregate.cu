#include "lowtide/engine/cuda/aggregate_kernels.h"
#include "lowtide/engine/cuda/device.cuh"
#include "lowtide/engine/cuda/launch.h"

namespace lowtide::cuda {
namespace {

constexpr int kThreads = 256, kRowsPerBlock = kThreads / kWarp;
constexpr int kFour = 4;          // neighbouring columns, which a thread sums
constexpr int kEntriesAhead = 4;  // that are asked for before the first of them is added

struct Four {
  float value[kFour];

  __device__ void add(float factor, const Four& x) {
#pragma unroll
    for (int i = 0; i < kFour; ++i) value[i] = __fmaf_rn(factor, x.value[i], value[i]);
  }
};

// Four columns of a feature row; where they do not all exist, the missing ones are zeros.
template <bool kCodes>
__device__ Four load(const AggregateArguments& a, std::int64_t row, int column) {
  const std::int64_t at = row * a.width + column;
  if (a.width % kFour == 0) {
    if constexpr (kCodes) {
      const uchar4 c = __ldg(reinterpret_cast<const uchar4*>(a.codes + at));
      return {{static_cast<float>(c.x), static_cast<float>(c.y), static_cast<float>(c.z),
               static_cast<float>(c.w)}};
    } else {
      const float4 v = __ldg(reinterpret_cast<const float4*>(a.values + at));
      return {{v.x, v.y, v.z, v.w}};
    }
  }
  Four four{};
  for (int i = 0; i < kFour && column + i < a.width; ++i)
    four.value[i] = kCodes ? static_cast<float>(a.codes[at + i]) : a.values[at + i];
  return four;
}

// One thread's sum, over the entries of a row that it takes: `factor` times features, and what the codes' offsets add.
template <bool kCodes, bool kHeads>
class RowSum {
 public:
  __device__ RowSum(const AggregateArguments& a, int column) : a_(a), column_(column) {}

  __device__ void add_entries(std::int64_t first, std::int64_t last, int step) {
    std::int64_t e = first;
    for (; e + (kEntriesAhead - 1) * step < last; e += kEntriesAhead * step) {
      std::int32_t row[kEntriesAhead];
      Four x[kEntriesAhead];
#pragma unroll
      for (int i = 0; i < kEntriesAhead; ++i) row[i] = a_.indices[e + i * step];
#pragma unroll
      for (int i = 0; i < kEntriesAhead; ++i) x[i] = load<kCodes>(a_, row[i], column_);
#pragma unroll
      for (int i = 0; i < kEntriesAhead; ++i) add(e + i * step, row[i], x[i]);
    }
    for (; e < last; e += step) add(e, a_.indices[e], load<kCodes>(a_, a_.indices[e], column_));
  }

  __device__ Four result() const {
    Four sum = sum_;
    if constexpr (kCodes) sum.add(1.0f, offset_sum_);
    return sum;
  }

 private:
  __device__ void add(std::int64_t entry, std::int32_t row, const Four& x) {
    const float own = a_.column_factor == nullptr ? 1.0f : a_.column_factor[row];
    const float scale = kCodes ? a_.scale[a_.by_row ? row : 0] : 1.0f;
    const float offset = kCodes ? a_.offset[a_.by_row ? row : 0] : 0.0f;
#pragma unroll
    for (int i = 0; i < kFour; ++i) {
      const float weight = own * weight_of(entry, i);
      sum_.value[i] = __fmaf_rn(weight * scale, x.value[i], sum_.value[i]);
      if constexpr (kCodes) offset_sum_.value[i] = __fmaf_rn(weight, offset, offset_sum_.value[i]);
    }
  }

  // Columns of several heads have weights of their own.
  __device__ float weight_of(std::int64_t entry, int i) const {
    if (a_.weights == nullptr) return 1.0f;
    if constexpr (!kHeads) return a_.weights[entry];
    return a_.weights[entry * a_.heads + min(column_ + i, a_.width - 1) / (a_.width / a_.heads)];
  }

  const AggregateArguments& a_;
  int column_;
  Four sum_{}, offset_sum_{};
};

// A block a row, whose threads share out columns and, where there are more threads, entries: those of a column are joined in
// a fixed order, so that the sum is always the same.
template <bool kCodes, bool kHeads>
__global__ void __launch_bounds__(kThreads) aggregate_kernel(const AggregateArguments a, int column_threads) {
  extern __shared__ Four parts[];
  const std::int64_t row = blockIdx.x, first = a.offsets[row], last = a.offsets[row + 1];
  const int group = static_cast<int>(threadIdx.x) / column_threads, groups = kThreads / column_threads;
  const float factor = a.row_factor == nullptr ? 1.0f : a.row_factor[row];
  const int lane = static_cast<int>(threadIdx.x) % column_threads;
  for (int begin = 0; begin < a.width; begin += column_threads * kFour) {
    const int column = begin + lane * kFour;
    if (group < groups && column < a.width) {
      RowSum<kCodes, kHeads> sum(a, column);
      sum.add_entries(first + group, last, groups);
      parts[threadIdx.x] = sum.result();
    }
    __syncthreads();
    if (group == 0 && column < a.width) {
      Four total = parts[lane];
      for (int i = 1; i < groups; ++i) total.add(1.0f, parts[i * column_threads + lane]);
      float* y = a.y + row * a.width + column;
      for (int i = 0; i < kFour && column + i < a.width; ++i) y[i] = factor * total.value[i];
    }
    __syncthreads();
  }
}

// ---- Narrow features ----------------------------------------------------------------------------------------------------

// Of so many columns at most, a warp sums a row: `lanes` of its threads have the columns, and the others more entries. Rows of more
// entries than kLongRow are summed by all of their block.
constexpr int kNarrow = 64;
constexpr std::int64_t kLongRow = 512;

int narrow_lanes(int width) {
  int lanes = 1;
  while (lanes * kFour < width) lanes *= 2;
  return lanes;
}

__device__ void store_row(const AggregateArguments& a, std::int64_t row, int column, const Four& sum) {
  const float factor = a.row_factor == nullptr ? 1.0f : a.row_factor[row];
  float* y = a.y + row * a.width + column;
  for (int i = 0; i < kFour && column + i < a.width; ++i) y[i] = factor * sum.value[i];
}

template <bool kCodes, bool kHeads>
__device__ __forceinline__ void sum_by_warp(const AggregateArguments& a, int lanes, std::int64_t row,
                                            std::int64_t first, std::int64_t last) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, group = lane / lanes, column = lane % lanes * kFour;
  RowSum<kCodes, kHeads> sum(a, column);
  if (column < a.width) sum.add_entries(first + group, last, kWarp / lanes);
  Four total = sum.result();
  for (int apart = lanes; apart < kWarp; apart *= 2) {
    Four other;
#pragma unroll
    for (int i = 0; i < kFour; ++i) other.value[i] = __shfl_xor_sync(0xffffffffu, total.value[i], apart);
    total.add(1.0f, other);
  }
  if (group == 0 && column < a.width) store_row(a, row, column, total);
}

template <bool kCodes, bool kHeads>
__device__ __forceinline__ void sum_by_block(const AggregateArguments& a, int lanes, std::int64_t row) {
  __shared__ Four parts[kThreads];
  const int thread = static_cast<int>(threadIdx.x), group = thread / lanes, groups = kThreads / lanes;
  const int column = thread % lanes * kFour;
  RowSum<kCodes, kHeads> sum(a, column);
  if (column < a.width) sum.add_entries(a.offsets[row] + group, a.offsets[row + 1], groups);
  parts[thread] = sum.result();
  __syncthreads();
  if (group == 0 && column < a.width) {
    Four total = parts[thread];
    for (int i = 1; i < groups; ++i) total.add(1.0f, parts[i * lanes + thread]);
    store_row(a, row, column, total);
  }
  __syncthreads();
}

template <bool kCodes, bool kHeads>
__global__ void __launch_bounds__(kThreads) aggregate_narrow_kernel(const AggregateArguments a, int lanes) {
  __shared__ bool is_long[kRowsPerBlock];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t block_row = static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock,
                     row = block_row + warp;
  const std::int64_t first = row < a.rows ? a.offsets[row] : 0, last = row < a.rows ? a.offsets[row + 1] : 0;
  const bool mine_is_long = last - first > kLongRow;
  if (threadIdx.x % kWarp == 0) is_long[warp] = mine_is_long;
  if (row < a.rows && !mine_is_long) sum_by_warp<kCodes, kHeads>(a, lanes, row, first, last);
  __syncthreads();
  for (int i = 0; i < kRowsPerBlock; ++i) {
    if (is_long[i]) sum_by_block<kCodes, kHeads>(a, lanes, block_row + i);
  }
}

// ---- Launches ------------------------------------------------------------------------------------------------------------

template <bool kCodes, bool kHeads>
void launch(const AggregateArguments& a, cudaStream_t stream) {
  if (a.width <= kNarrow) {
    const auto blocks = static_cast<unsigned>((a.rows + kRowsPerBlock - 1) / kRowsPerBlock);
    aggregate_narrow_kernel<kCodes, kHeads><<<blocks, kThreads, 0, stream>>>(a, narrow_lanes(a.width));
    return;
  }
  int column_threads = kWarp;
  while (column_threads < kThreads && column_threads * kFour < a.width) column_threads *= 2;
  aggregate_kernel<kCodes, kHeads>
      <<<static_cast<unsigned>(a.rows), kThreads, kThreads * sizeof(Four), stream>>>(a, column_threads);
}

}  // namespace

void aggregate(const AggregateArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  if (a.codes != nullptr) {
    a.heads > 1 ? launch<true, true>(a, stream) : launch<true, false>(a, stream);
  } else {
    a.heads > 1 ? launch<false, true>(a, stream) : launch<false, false>(a, stream);
  }
  check_launch("aggregation");
}

}  // namespace lowtide::cuda
