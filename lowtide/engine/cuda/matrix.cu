#include <cuda_fp16.h>

#include "lowtide/engine/cuda/device.cuh"
#include "lowtide/engine/cuda/launch.h"
#include "lowtide/engine/cuda/matrix.cuh"

namespace lowtide::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kFour = 4;  // numbers that a thread takes at once

struct FourCodes {
  int code[kFour];

  // Codes of a row of `n`, from `at` on; 0 beyond its end. `whole`: rows begin at multiples of four.
  __device__ static FourCodes load(const std::uint8_t* row, int at, int n, bool whole) {
    if (whole) {
      const uchar4 c = *reinterpret_cast<const uchar4*>(row + at);
      return {{c.x, c.y, c.z, c.w}};
    }
    FourCodes four{};
    for (int i = 0; i < kFour && at + i < n; ++i) four.code[i] = row[at + i];
    return four;
  }
};

// Rows of halves have room for whole fours, and begin at multiples of eight.
__device__ void store_four(__half* to, float a, float b, float c, float d) {
  const __half2 low = __floats2half2_rn(a, b), high = __floats2half2_rn(c, d);
  *reinterpret_cast<uint2*>(to) =
      make_uint2(*reinterpret_cast<const unsigned*>(&low), *reinterpret_cast<const unsigned*>(&high));
}

// A warp a row.
constexpr int kRowsPerBlock = kThreads / kWarp;
__global__ void __launch_bounds__(kThreads) rows_kernel(MatrixCodes q, HalfMatrix to) {
  const long long row = static_cast<long long>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= static_cast<long long>(q.matrices) * q.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int centre = centre_of(q.bits);
  const std::uint8_t* codes = q.code + row * q.columns;
  __half* halves = static_cast<__half*>(to.high) + row * to.stride;
  int sum = 0;
#pragma unroll 2
  for (int at = lane * kFour; at < q.columns; at += kWarp * kFour) {
    const FourCodes four = FourCodes::load(codes, at, q.columns, q.columns % kFour == 0);
    float value[kFour];
#pragma unroll
    for (int i = 0; i < kFour; ++i) {
      const int centred = at + i < q.columns ? four.code[i] - centre : 0;
      sum += centred;
      value[i] = static_cast<float>(centred);
    }
    store_four(halves + at, value[0], value[1], value[2], value[3]);
  }
  sum = __reduce_add_sync(0xffffffffu, sum);
  if (lane == 0) {
    const float offset = q.offset[q.by_row ? row : 0];
    const float step = q.scale[q.by_row ? row : 0];
    // Zeros give zeros: with middle codes taken off and added again, they would be a rounding off. An infinity has codes of
    // 0 too, but no finite step, and must not pass for a zero.
    const bool is_zero = offset == 0.0f && step < INFINITY && sum == -centre * q.columns;
    const float scale = is_zero ? 0.0f : step;
    to.side.factor[row] = scale;
    to.side.middle[row] = middle_value(scale, offset, centre);
    to.side.total[row] = scale * static_cast<float>(sum);
  }
}

// ---- Sums along columns --------------------------------------------------------------------------------------------

constexpr int kColumnThreads = 8;  // along a column
constexpr int kTileColumns = kWarp * kFour;
// Rows of a tile: few, so that there are tiles for all multiprocessors; but no more than some dozens of tiles, whose sums one
// thread adds up.
constexpr int kLeastTileRows = 32, kMostTiles = 64;
__host__ __device__ int tile_rows(int rows) {
  return max(kLeastTileRows, round_up(divide_up(rows, kMostTiles), kColumnThreads));
}

enum class Form {
  kCentred,  // codes, with their sums
  kBare,     // codes
  kLimbs     // values in two limbs, with their sums
};

struct ColumnArguments {
  MatrixCodes q;
  MatrixCodes other;  // with scales inside the sum too, where it has codes
  HalfMatrix to;
  double* partial = nullptr;  // matrices × tiles of rows × columns
  float* unit = nullptr;      // a matrix each: a power of two above all its values
  int row_tiles = 0;
};

// The sums of a block's tile, whose threads of a column are joined in their order.
__device__ void join_tile(const ColumnArguments& a, const double (&sum)[kFour]) {
  __shared__ double joined[kColumnThreads][kTileColumns];
  const int lane = static_cast<int>(threadIdx.x), thread = static_cast<int>(threadIdx.y) * kWarp + lane;
#pragma unroll
  for (int i = 0; i < kFour; ++i) joined[threadIdx.y][lane * kFour + i] = sum[i];
  __syncthreads();
  const int column = static_cast<int>(blockIdx.z) * kTileColumns + thread;
  if (thread >= kTileColumns || column >= a.q.columns) return;
  double total = 0;
  for (int i = 0; i < kColumnThreads; ++i) total += joined[i][thread];
  const long long tile = static_cast<long long>(blockIdx.x) * a.row_tiles + blockIdx.y;
  a.partial[tile * a.q.columns + column] = total;
}

// A tile of rows and columns of a matrix a block.
template <Form kForm>
__global__ void __launch_bounds__(kWarp* kColumnThreads) columns_kernel(ColumnArguments a) {
  const MatrixCodes& q = a.q;
  const int matrix = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  const int column = static_cast<int>(blockIdx.z) * kTileColumns + lane * kFour;
  const int height = tile_rows(q.rows), first = static_cast<int>(blockIdx.y) * height;
  const int last = min(first + height, q.rows);
  const int centre = centre_of(q.bits);
  const bool has_other = a.other.scale != nullptr;
  const int other_centre = kForm == Form::kLimbs && has_other ? centre_of(a.other.bits) : 0;
  const float inverse = kForm == Form::kLimbs ? 1.0f / a.unit[matrix] : 1.0f;
  double sum[kFour]{};
  if (column < q.columns) {
    for (int row = first + static_cast<int>(threadIdx.y); row < last; row += kColumnThreads) {
      const long long at = static_cast<long long>(matrix) * q.rows + row;
      const FourCodes four =
          FourCodes::load(q.code + at * q.columns, column, q.columns, q.columns % kFour == 0);
      __half* high = static_cast<__half*>(a.to.high) + at * a.to.stride + column;
      if constexpr (kForm == Form::kLimbs) {
        const float scale = q.scale[at], offset = q.offset[at];
        const float other_scale = has_other ? a.other.scale[at] : 1.0f;
        const float weight = has_other ? middle_value(other_scale, a.other.offset[at], other_centre) : 1.0f;
        float x[kFour], rest[kFour];
#pragma unroll
        for (int i = 0; i < kFour; ++i) {
          const float value = __fadd_rn(__fmul_rn(static_cast<float>(four.code[i]), scale), offset);
          sum[i] += static_cast<double>(value) * static_cast<double>(weight);
          x[i] = value * other_scale * inverse;
          rest[i] = (x[i] - __half2float(__float2half_rn(x[i]))) * kLowLimb;
        }
        store_four(high, x[0], x[1], x[2], x[3]);
        store_four(static_cast<__half*>(a.to.low) + at * a.to.stride + column, rest[0], rest[1], rest[2],
                   rest[3]);
      } else {
        float x[kFour];
#pragma unroll
        for (int i = 0; i < kFour; ++i) {
          x[i] = static_cast<float>(four.code[i] - centre);
          sum[i] += static_cast<double>(x[i]);
        }
        store_four(high, x[0], x[1], x[2], x[3]);
      }
    }
  }
  if constexpr (kForm != Form::kBare) join_tile(a, sum);
}

// A thread a column: its tiles' sums, and what a product needs of it.
template <Form kForm>
__global__ void columns_side(ColumnArguments a) {
  const int matrix = static_cast<int>(blockIdx.x);
  const int column = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if (column >= a.q.columns) return;
  double total = 0;
  if constexpr (kForm != Form::kBare) {
    const double* partial = a.partial + static_cast<long long>(matrix) * a.row_tiles * a.q.columns + column;
    for (int tile = 0; tile < a.row_tiles; ++tile)
      total += partial[static_cast<long long>(tile) * a.q.columns];
  }
  float factor = 1.0f, middle = 1.0f;
  if constexpr (kForm == Form::kCentred) {
    factor = *a.q.scale;
    middle = middle_value(factor, *a.q.offset, centre_of(a.q.bits));
    total *= static_cast<double>(factor);
  } else if constexpr (kForm == Form::kLimbs) {
    factor = a.unit[matrix];
    middle = 0.0f;
  }
  const long long at = static_cast<long long>(matrix) * a.q.columns + column;
  a.to.side.factor[at] = factor;
  a.to.side.middle[at] = middle;
  a.to.side.total[at] = static_cast<float>(total);
}

// A block a matrix. A value that is not finite makes all of its limbs NaN.
constexpr int kUnitThreads = 512;
__global__ void __launch_bounds__(kUnitThreads) limb_units(ColumnArguments a) {
  const MatrixCodes& q = a.q;
  const float top = q.bits.top();
  float bound = 0;
  bool poisoned = false;
  for (int row = static_cast<int>(threadIdx.x); row < q.rows; row += kUnitThreads) {
    const long long at = static_cast<long long>(blockIdx.x) * q.rows + row;
    const float end = __fmaf_rn(q.scale[at], top, q.offset[at]);
    float most = fmaxf(fabsf(q.offset[at]), fabsf(end));
    if (a.other.scale != nullptr) most *= a.other.scale[at];
    poisoned |= !isfinite(end) || !isfinite(most);
    bound = fmaxf(bound, most);
  }
  poisoned = __syncthreads_or(poisoned);
  __shared__ unsigned most;
  if (threadIdx.x == 0) most = 0;
  __syncthreads();
  atomicMax(&most, __float_as_uint(bound));  // floats above 0 are in the order of their bits
  __syncthreads();
  if (threadIdx.x != 0) return;
  int exponent = 0;
  frexpf(__uint_as_float(most), &exponent);
  a.unit[blockIdx.x] = poisoned ? NAN : ldexpf(1.0f, exponent);
}

__global__ void __launch_bounds__(kThreads) finish_kernel(FinishArguments a) {
  const long long row = blockIdx.x;  // of all matrices
  const long long matrix = row / a.rows;
  const int column = (static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x)) * kFour;
  if (column >= a.columns) return;
  const float factor = a.left.factor[row], middle = a.left.middle[row], total = a.left.total[row];
  const auto depth = static_cast<float>(a.depth);
  const long long right = matrix * a.columns + column;
  const auto finished = [&](float y, int i) {
    const float other_middle = a.right.middle[right + i];
    const float rest = __fmaf_rn(depth, other_middle, a.right.total[right + i]);
    return __fmaf_rn(factor * a.right.factor[right + i], y, __fmaf_rn(total, other_middle, middle * rest));
  };
  float* y = a.y + row * a.columns + column;
  if (a.columns % kFour == 0) {
    const float4 v = *reinterpret_cast<const float4*>(y);
    *reinterpret_cast<float4*>(y) =
        make_float4(finished(v.x, 0), finished(v.y, 1), finished(v.z, 2), finished(v.w, 3));
  } else {
    for (int i = 0; i < kFour && column + i < a.columns; ++i) y[i] = finished(y[i], i);
  }
}

// ---- Launches ------------------------------------------------------------------------------------------------------

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

ColumnArguments column_arguments(const MatrixCodes& q, const HalfMatrix& to, void* work) {
  ColumnArguments a;
  a.q = q;
  a.to = to;
  a.row_tiles = divide_up(q.rows, tile_rows(q.rows));
  a.partial = static_cast<double*>(work);
  if (work != nullptr)
    a.unit =
        reinterpret_cast<float*>(a.partial + static_cast<long long>(q.matrices) * a.row_tiles * q.columns);
  return a;
}

template <Form kForm>
void launch_columns(const ColumnArguments& a, void* stream) {
  // A grid has room for more than 65,535 in x alone, and a stack may have as many matrices.
  const auto matrices = static_cast<unsigned>(a.q.matrices);
  const dim3 tiles(matrices, static_cast<unsigned>(a.row_tiles),
                   static_cast<unsigned>(divide_up(a.q.columns, kTileColumns)));
  columns_kernel<kForm><<<tiles, dim3(kWarp, kColumnThreads), 0, as_stream(stream)>>>(a);
  const dim3 columns(matrices, static_cast<unsigned>(divide_up(a.q.columns, kThreads)));
  columns_side<kForm><<<columns, kThreads, 0, as_stream(stream)>>>(a);
  check_launch("halves by columns");
}

}  // namespace

std::int64_t column_work_bytes(const MatrixCodes& q) {
  const std::int64_t sums =
      static_cast<std::int64_t>(q.matrices) * divide_up(q.rows, tile_rows(q.rows)) * q.columns;
  return sums * static_cast<std::int64_t>(sizeof(double)) +
         static_cast<std::int64_t>(sizeof(float)) * q.matrices;
}

void halves_by_rows(const MatrixCodes& q, const HalfMatrix& to, void* stream) {
  const int rows = q.matrices * q.rows;
  rows_kernel<<<static_cast<unsigned>(divide_up(rows, kRowsPerBlock)), kThreads, 0, as_stream(stream)>>>(q,
                                                                                                         to);
  check_launch("halves by rows");
}

void halves_by_columns(const MatrixCodes& q, const HalfMatrix& to, void* work, void* stream) {
  launch_columns<Form::kCentred>(column_arguments(q, to, work), stream);
}

void bare_halves(const MatrixCodes& q, const HalfMatrix& to, void* stream) {
  launch_columns<Form::kBare>(column_arguments(q, to, nullptr), stream);
}

void value_limbs(const MatrixCodes& q, const MatrixCodes* other, const HalfMatrix& to, void* work,
                 void* stream) {
  ColumnArguments a = column_arguments(q, to, work);
  if (other != nullptr) a.other = *other;
  limb_units<<<static_cast<unsigned>(q.matrices), kUnitThreads, 0, as_stream(stream)>>>(a);
  launch_columns<Form::kLimbs>(a, stream);
}

void finish_product(const FinishArguments& a, void* stream) {
  const dim3 grid(static_cast<unsigned>(a.matrices * a.rows),
                  static_cast<unsigned>(divide_up(a.columns, kThreads * kFour)));
  finish_kernel<<<grid, kThreads, 0, as_stream(stream)>>>(a);
  check_launch("a product's end");
}

}  // namespace lowtide::cuda
