#include <algorithm>

#include "lowtide/engine/cuda/byte_product.h"
#include "lowtide/engine/cuda/launch.h"
#include "lowtide/engine/cuda/matrix.cuh"
#include "lowtide/engine/cuda/warpgroup.cuh"

namespace lowtide::cuda {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ const bool kCompiled = true;
#else
__device__ const bool kCompiled = false;
#endif

enum class Right {
  kCodes,  // 192 columns
  kLimbs   // 64 columns, three limbs each
};

// A warpgroup has 128 rows of a tile, as two operands. A tile's operands come from the second-level cache, whose speed is what limits
// a product: so a tile is as large as registers allow.
constexpr int kGroups = 2, kThreads = kGroups * 128;  // warpgroups of a block
constexpr int kParts = 2, kPartRows = 64;             // of a warpgroup
constexpr int kTileRows = kGroups * kParts * kPartRows, kTileOperands = 192;
constexpr int kStages = 4;
constexpr int kLimbColumns = kTileOperands / kByteLimbs;
constexpr int kPackets = kRowBytes / kPacketBytes;
constexpr int kLeftBytes = kTileRows * kRowBytes, kStageBytes = kLeftBytes + kTileOperands * kRowBytes;
// Beside the stages, eight rows of bytes: one of ones, whose products are sums of a's rows, and seven of zeros.
constexpr int kOnesBytes = 8 * kRowBytes, kSharedBytes = kStages * kStageBytes + kOnesBytes;

template <Right kRight>
constexpr int kColumns = kRight == Right::kCodes ? kTileOperands : kLimbColumns;

// The sums of a thread: of its rows and columns, and of its rows alone.
struct Sums {
  int product[kParts][kTileOperands / 2];
  int row[kParts][4];
};

// One packet of a row on its way; zeros where the row or its end is not there.
__device__ void copy_packet(unsigned to, const std::uint8_t* from, bool exists) {
  const int bytes = exists ? kPacketBytes : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

// The operands of a tile of y, as they pass through shared memory in chunks of 128 terms. A thread copies one packet of every
// 32nd row.
template <Right kRight>
class Operands {
 public:
  __device__ Operands(const MatrixCodes& a, const std::uint8_t* right, int columns, unsigned shared)
      : terms_(a.columns), shared_(shared) {
    const int packet = static_cast<int>(threadIdx.x) % kPackets;
    first_row_ = static_cast<int>(threadIdx.x) / kPackets;
    term_ = packet * kPacketBytes;
    to_ = static_cast<unsigned>(swizzled(first_row_, packet));
    const int row = static_cast<int>(blockIdx.y) * kTileRows,
              column = static_cast<int>(blockIdx.x) * kColumns<kRight>;
    rows_ = a.rows - row;
    columns_ = columns - column;
    left_ = a.code + static_cast<long long>(row + first_row_) * terms_ + term_;
    right_ = right + static_cast<long long>(column + first_row_) * terms_ + term_;
    limb_bytes_ = static_cast<long long>(columns) * terms_;
  }

  __device__ void copy(int chunk) const {
    const unsigned stage = at(chunk) + to_;
    const int along = chunk * kRowBytes;
    const bool inside = along + term_ < terms_;
    const long long apart = static_cast<long long>(kRowsApart) * terms_;
#pragma unroll
    for (int i = 0; i < kTileRows / kRowsApart; ++i) {
      const bool exists = inside && first_row_ + i * kRowsApart < rows_;
      copy_packet(stage + i * kRowsApart * kRowBytes, exists ? left_ + along + i * apart : left_, exists);
    }
#pragma unroll
    for (int i = 0; i < kTileOperands / kRowsApart; ++i) {
      const int limb = kRight == Right::kLimbs ? i * kRowsApart / kLimbColumns : 0;
      const int column = i * kRowsApart - limb * kLimbColumns;
      const bool exists = inside && first_row_ + column < columns_;
      copy_packet(stage + kLeftBytes + i * kRowsApart * kRowBytes,
                  exists ? right_ + along + limb * limb_bytes_ + column / kRowsApart * apart : right_,
                  exists);
    }
  }

  __device__ int chunks() const { return divide_up(terms_, kRowBytes); }
  __device__ unsigned at(int chunk) const {
    return shared_ + static_cast<unsigned>(chunk % kStages) * kStageBytes;
  }

 private:
  static constexpr int kRowsApart =
      kThreads / kPackets;  // a multiple of eight, after which the places of packets repeat
  static_assert(kRowsApart % 8 == 0 && kLimbColumns % kRowsApart == 0);

  const std::uint8_t *left_, *right_;
  long long limb_bytes_;
  int terms_, first_row_, term_, rows_, columns_;
  unsigned shared_, to_;
};

__device__ void write_ones(unsigned char* to) {
  auto* words = reinterpret_cast<unsigned*>(to);
  for (int i = static_cast<int>(threadIdx.x); i < kOnesBytes / 4; i += kThreads)
    words[i] = i < kRowBytes / 4 ? 0x01010101u : 0u;
}

// The sums of a tile. A stage is written anew when the chunk after the one that it held is being multiplied.
template <Right kRight>
__device__ void sum_tile(const Operands<kRight>& operands, unsigned ones, Sums& sums) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kAhead = kStages - 2;
  const int chunks = operands.chunks();
  const unsigned group = threadIdx.x / 128;
#pragma unroll
  for (int chunk = 0; chunk < kAhead; ++chunk) {
    if (chunk < chunks) operands.copy(chunk);
    commit_copies();
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    wait_for_copies<kAhead - 1>();
    wait_for_products<1>();
    show_to_tensor_cores();
    __syncthreads();
    const unsigned stage = operands.at(chunk);
    const std::uint64_t right = operand(stage + kLeftBytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < kRowBytes / kStepBytes; ++step) {
      const std::uint64_t along = static_cast<std::uint64_t>(step * kStepBytes / 16);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const std::uint64_t left = operand(stage + (group * kParts + part) * kPartRows * kRowBytes) + along;
        if constexpr (kRight == Right::kCodes) {
          multiply_codes(sums.product[part], left, right + along, chunk + step);
          multiply_codes(sums.row[part], left, operand(ones) + along, chunk + step);
        } else {
          multiply_limbs(sums.product[part], left, right + along, chunk + step);
        }
      }
    }
    commit_products();
    if (chunk + kAhead < chunks) operands.copy(chunk + kAhead);
    commit_copies();
  }
  wait_for_products<0>();
#endif
}

// ---- From sums to values ---------------------------------------------------------------------------------------------

// A thread's numbers of y: two rows of each part, pairs of neighbouring columns.
template <Right kRight>
struct Place {
  int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;

  __device__ int row(int part, int i) const {
    return static_cast<int>(blockIdx.y) * kTileRows + (warp / 4 * kParts + part) * kPartRows + warp % 4 * 16 +
           lane / 4 + 8 * i;
  }
  __device__ int pair(int j) const { return lane % 4 * 2 + 8 * j; }  // in its tile
  __device__ static int first_column() { return static_cast<int>(blockIdx.x) * kColumns<kRight>; }
};

__device__ void store_pair(float* row, int column, int columns, float first, float second) {
  if (columns % 2 == 0) {
    *reinterpret_cast<float2*>(row + column) = make_float2(first, second);
  } else {
    row[column] = first;
    if (column + 1 < columns) row[column + 1] = second;
  }
}

// Of a row of a: a value is factor · (code - centre) + middle.
struct RowScale {
  float factor, middle;

  __device__ static RowScale of(const MatrixCodes& a, int row) {
    const int at = a.by_row ? min(row, a.rows - 1) : 0;
    return {a.scale[at], middle_value(a.scale[at], a.offset[at], centre_of(a.bits))};
  }
};

// A tile's columns, in shared memory once its stages have served. With centred codes c, factors f, middle values z and
// totals t = f Σ c of rows and columns, a value is
//   f_i f_j Σ c_i c_j + t_i z_j + z_i (t_j + K z_j) + bias_j.
struct CodeColumns {
  float factor[kTileOperands], middle[kTileOperands], rest[kTileOperands], bias[kTileOperands];
  int centring
      [kTileOperands];  // what is added to a sum of products of codes, beside what the row's sum takes off
};
struct CodeColumn {
  float factor = 0, middle = 0, rest = 0, bias = 0;
  int centring = 0;

  __device__ static CodeColumn of(const ByteProductArguments& p, int column) {
    if (column >= p.b.rows) return {};
    const int at = p.b.by_row ? column : 0, terms = p.a.columns, centre = centre_of(p.b.bits),
              a_centre = centre_of(p.a.bits);
    const int sum = p.b_sums[column];
    CodeColumn c;
    c.factor = p.b.scale[at];
    c.middle = middle_value(c.factor, p.b.offset[at], centre);
    c.rest =
        __fmaf_rn(static_cast<float>(terms), c.middle, c.factor * static_cast<float>(sum - terms * centre));
    c.bias = p.bias == nullptr ? 0.0f : p.bias[column];
    c.centring = terms * a_centre * centre - a_centre * sum;
    return c;
  }
  __device__ void store(CodeColumns& to, int at) const {
    to.factor[at] = factor;
    to.middle[at] = middle;
    to.rest[at] = rest;
    to.bias[at] = bias;
    to.centring[at] = centring;
  }
};

__device__ void store_codes_row(const ByteProductArguments& p, const CodeColumns& columns,
                                const int (&sum)[kTileOperands / 2], int i, int row, const RowScale& scale,
                                int code_sum) {
  const Place<Right::kCodes> place;
  const int b_centre = centre_of(p.b.bits), row_centring = b_centre * code_sum;
  const float total = scale.factor * static_cast<float>(code_sum - p.a.columns * centre_of(p.a.bits));
  float* y = p.y + static_cast<long long>(row) * p.b.rows;
#pragma unroll
  for (int j = 0; j < kTileOperands / 8; ++j) {
    const int at = place.pair(j), column = place.first_column() + at;
    float value[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int centred = sum[4 * j + 2 * i + k] - row_centring + columns.centring[at + k];
      const float with_middles = __fmaf_rn(
          total, columns.middle[at + k], __fmaf_rn(scale.middle, columns.rest[at + k], columns.bias[at + k]));
      value[k] = __fmaf_rn(scale.factor * columns.factor[at + k], static_cast<float>(centred), with_middles);
    }
    if (column < p.b.rows) store_pair(y, column, p.b.rows, value[0], value[1]);
  }
}

__global__ void __launch_bounds__(kThreads, 1) codes_kernel(const ByteProductArguments p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  write_ones(shared + kStages * kStageBytes);
  const Place<Right::kCodes> place;
  const int mine = static_cast<int>(threadIdx.x);
  const CodeColumn column =
      mine < kTileOperands ? CodeColumn::of(p, place.first_column() + mine) : CodeColumn{};
  RowScale scale[kParts][2];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < 2; ++i) scale[part][i] = RowScale::of(p.a, place.row(part, i));
  }
  Sums sums;
  sum_tile<Right::kCodes>({p.a, p.b.code, p.b.rows, shared_address(shared)},
                          shared_address(shared + kStages * kStageBytes), sums);
  auto& columns = *reinterpret_cast<CodeColumns*>(shared);
  __syncthreads();
  if (mine < kTileOperands) column.store(columns, mine);
  __syncthreads();
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // The lane that has the first column has its row's products with ones.
      const int code_sum = __shfl_sync(0xffffffffu, sums.row[part][2 * i], 0, 4), row = place.row(part, i);
      if (row < p.a.rows) store_codes_row(p, columns, sums.product[part], i, row, scale[part][i], code_sum);
    }
  }
}

// What a block needs of its columns of limbs. A sum of products of a limb is too large by `centring`, the limb's sum times a's
// middle code; `total` is the limbs' sums joined, which the middle code's value is multiplied by.
struct LimbColumns {
  int centring[kByteLimbs][kLimbColumns];
  float total[kLimbColumns];
};

__device__ float joined(int low, int middle, int high) {
  const float upper = __fmaf_rn(static_cast<float>(high), 256.0f, static_cast<float>(middle));
  return __fmaf_rn(upper, 256.0f, static_cast<float>(low));
}

struct LimbColumn {
  int sum[kByteLimbs]{};

  __device__ static LimbColumn of(const LimbMatrix& b, int column) {
    LimbColumn c;
    if (column >= b.columns) return c;
#pragma unroll
    for (int limb = 0; limb < kByteLimbs; ++limb) {
      for (int part = 0; part < limb_sum_parts(b.terms); ++part)
        c.sum[limb] += b.sum[(part * kByteLimbs + limb) * b.columns + column];
    }
    return c;
  }
  __device__ void store(LimbColumns& to, int at, int centre) const {
#pragma unroll
    for (int limb = 0; limb < kByteLimbs; ++limb) to.centring[limb][at] = centre * sum[limb];
    to.total[at] = joined(sum[0], sum[1], sum[2]);
  }
};

__device__ void store_limbs_row(const LimbProductArguments& p, const LimbColumns& columns,
                                const int (&sum)[kTileOperands / 2], int i, int row, const RowScale& scale,
                                float unit) {
  const Place<Right::kLimbs> place;
  const float factor = scale.factor * unit, middle = scale.middle * unit;
  float* y = p.y + static_cast<long long>(row) * p.b.columns;
#pragma unroll
  for (int j = 0; j < kLimbColumns / 8; ++j) {
    const int at = place.pair(j), column = place.first_column() + at;
    float value[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      int centred[kByteLimbs];
#pragma unroll
      for (int limb = 0; limb < kByteLimbs; ++limb)
        centred[limb] = sum[limb * kLimbColumns / 2 + 4 * j + 2 * i + k] - columns.centring[limb][at + k];
      value[k] =
          __fmaf_rn(factor, joined(centred[0], centred[1], centred[2]), middle * columns.total[at + k]);
    }
    if (column < p.b.columns) store_pair(y, column, p.b.columns, value[0], value[1]);
  }
}

__global__ void __launch_bounds__(kThreads, 1) limbs_kernel(const LimbProductArguments p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const Place<Right::kLimbs> place;
  const int mine = static_cast<int>(threadIdx.x);
  const LimbColumn column =
      mine < kLimbColumns ? LimbColumn::of(p.b, place.first_column() + mine) : LimbColumn{};
  RowScale scale[kParts][2];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < 2; ++i) scale[part][i] = RowScale::of(p.a, place.row(part, i));
  }
  const float unit = *p.b.unit;
  Sums sums;
  sum_tile<Right::kLimbs>(
      {p.a, reinterpret_cast<const std::uint8_t*>(p.b.limb), p.b.columns, shared_address(shared)}, 0, sums);
  auto& columns = *reinterpret_cast<LimbColumns*>(shared);
  __syncthreads();
  if (mine < kLimbColumns) column.store(columns, mine, centre_of(p.a.bits));
  __syncthreads();
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = place.row(part, i);
      if (row < p.a.rows) store_limbs_row(p, columns, sums.product[part], i, row, scale[part][i], unit);
    }
  }
}

// ---- What products need of their right operand ---------------------------------------------------------------------

// A warp a row.
constexpr int kSumThreads = 128;
__global__ void __launch_bounds__(kSumThreads) code_sums_kernel(MatrixCodes q, int* sums) {
  const int row =
      static_cast<int>(blockIdx.x) * (kSumThreads / kWarp) + static_cast<int>(threadIdx.x) / kWarp;
  if (row >= q.rows) return;
  const auto* packets = reinterpret_cast<const uint4*>(q.code + static_cast<long long>(row) * q.columns);
  unsigned sum = 0;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < q.columns / kPacketBytes; i += kWarp) {
    const uint4 packet = packets[i];
    for (const unsigned four : {packet.x, packet.y, packet.z, packet.w}) sum = __dp4a(four, 0x01010101u, sum);
  }
  sum = __reduce_add_sync(0xffffffffu, sum);
  if (threadIdx.x % kWarp == 0) sums[row] = static_cast<int>(sum);
}

// A block a tile of sixteen columns and 256 rows, a thread each.
constexpr int kLimbThreads = 256, kLimbTile = 16;
static_assert(kLimbThreads == kLimbRows);
constexpr float kLimbTop = 127.0f * 65536.0f;  // the largest: its digits are 127, 0, 0

// The largest of all values, by the ends of their rows' ranges; NaN where one is not finite.
__device__ float largest_value(const MatrixCodes& q) {
  __shared__ unsigned most;
  if (threadIdx.x == 0) most = 0;
  __syncthreads();
  const float top = q.bits.top();
  float bound = 0;
  bool poisoned = false;
  for (int row = static_cast<int>(threadIdx.x); row < q.rows; row += kLimbThreads) {
    const int at = q.by_row ? row : 0;
    const float end = __fmaf_rn(q.scale[at], top, q.offset[at]);
    poisoned |= !isfinite(end) || !isfinite(q.offset[at]);
    bound = fmaxf(bound, fmaxf(fabsf(q.offset[at]), fabsf(end)));
  }
  atomicMax(&most, __float_as_uint(bound));  // floats above 0 are in the order of their bits
  poisoned = __syncthreads_or(poisoned);
  return poisoned ? NAN : fmaxf(__uint_as_float(most), 1e-30f);
}

struct Digits {
  int of[kByteLimbs];

  __device__ static Digits of_number(int x) {
    Digits d;
    d.of[0] = static_cast<std::int8_t>(x);
    x = (x - d.of[0]) >> 8;
    d.of[1] = static_cast<std::int8_t>(x);
    d.of[2] = (x - d.of[1]) >> 8;
    return d;
  }
};

__device__ void load_codes(const MatrixCodes& q, int row, int first, int count,
                           std::uint8_t (&code)[kLimbTile]) {
  const std::uint8_t* from = q.code + static_cast<long long>(row) * q.columns + first;
  if (q.columns % kLimbTile == 0) {
    *reinterpret_cast<uint4*>(code) = *reinterpret_cast<const uint4*>(from);
  } else {
    for (int i = 0; i < count; ++i) code[i] = from[i];
  }
}

__global__ void __launch_bounds__(kLimbThreads) make_limbs_kernel(MatrixCodes q, LimbMatrix to) {
  constexpr int kLines = kByteLimbs * kLimbTile;  // of a tile that is transposed
  __shared__ __align__(16) std::int8_t tile[kLines][kLimbThreads + 16];
  const float largest = largest_value(q), inverse = kLimbTop / largest;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *to.unit = largest / kLimbTop;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int first = static_cast<int>(blockIdx.x) * kLimbTile, count = min(kLimbTile, q.columns - first);
  const int begin = static_cast<int>(blockIdx.y) * kLimbThreads, row = begin + thread;
  __align__(16) std::uint8_t code[kLimbTile]{};
  float scale = 0, offset = 0;
  if (row < q.rows) {
    scale = q.scale[q.by_row ? row : 0];
    offset = q.offset[q.by_row ? row : 0];
    load_codes(q, row, first, count, code);
  }
#pragma unroll
  for (int i = 0; i < kLimbTile; ++i) {
    const float value = __fadd_rn(__fmul_rn(static_cast<float>(code[i]), scale), offset);
    const Digits digits =
        Digits::of_number(__float2int_rn(fminf(fmaxf(value * inverse, -kLimbTop), kLimbTop)));
#pragma unroll
    for (int limb = 0; limb < kByteLimbs; ++limb)
      tile[limb * kLimbTile + i][thread] = static_cast<std::int8_t>(digits.of[limb]);
  }
  __syncthreads();
  for (int line = warp; line < kLines; line += kLimbThreads / kWarp) {
    const int limb = line / kLimbTile, column = line % kLimbTile;
    const int2 eight = *reinterpret_cast<const int2*>(&tile[line][lane * 8]);
    const int sum =
        __reduce_add_sync(0xffffffffu, __dp4a(eight.x, 0x01010101, __dp4a(eight.y, 0x01010101, 0)));
    if (column >= count) continue;
    const long long to_line = static_cast<long long>(limb) * to.columns + first + column;
    if (lane == 0) to.sum[static_cast<long long>(blockIdx.y) * kByteLimbs * to.columns + to_line] = sum;
    const int at = begin + lane * 8;  // terms are a multiple of sixteen
    if (at < q.rows) *reinterpret_cast<int2*>(to.limb + to_line * to.terms + at) = eight;
  }
}

template <Right kRight>
dim3 tiles_of(int rows, int columns) {
  return {static_cast<unsigned>(divide_up(columns, kColumns<kRight>)),
          static_cast<unsigned>(divide_up(rows, kTileRows))};
}

}  // namespace

bool can_multiply_bytes() {
  int device = 0, major = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess || major != 9)
    return false;
  bool compiled = false;
  return cudaMemcpyFromSymbol(&compiled, kCompiled, sizeof compiled) == cudaSuccess && compiled;
}

void multiply_bytes(const ByteProductArguments& a, void* stream) {
  cudaFuncSetAttribute(codes_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  codes_kernel<<<tiles_of<Right::kCodes>(a.a.rows, a.b.rows), kThreads, kSharedBytes,
                 static_cast<cudaStream_t>(stream)>>>(a);
  check_launch("a product of bytes");
}

void sum_code_rows(const MatrixCodes& codes, int* sums, void* stream) {
  constexpr int kRows = kSumThreads / kWarp;
  code_sums_kernel<<<static_cast<unsigned>(divide_up(codes.rows, kRows)), kSumThreads, 0,
                     static_cast<cudaStream_t>(stream)>>>(codes, sums);
  check_launch("sums of codes");
}

void make_limbs(const MatrixCodes& codes, const LimbMatrix& to, void* stream) {
  const dim3 tiles(static_cast<unsigned>(divide_up(codes.columns, kLimbTile)),
                   static_cast<unsigned>(limb_sum_parts(codes.rows)));
  make_limbs_kernel<<<tiles, kLimbThreads, 0, static_cast<cudaStream_t>(stream)>>>(codes, to);
  check_launch("limbs");
}

void multiply_limbs(const LimbProductArguments& a, void* stream) {
  cudaFuncSetAttribute(limbs_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  limbs_kernel<<<tiles_of<Right::kLimbs>(a.a.rows, a.b.columns), kThreads, kSharedBytes,
                 static_cast<cudaStream_t>(stream)>>>(a);
  check_launch("a product of limbs");
}

}  // namespace lowtide::cuda
