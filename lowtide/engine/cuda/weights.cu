// A step's weights: ranges and codes by row, and both packed forms, for all layers of a trunk in a few launches.
#include "lowtide/engine/cuda/device.cuh"
#include "lowtide/engine/cuda/gather.cuh"
#include "lowtide/engine/cuda/launch.h"
#include "lowtide/engine/cuda/layers.cuh"
#include "lowtide/engine/cuda/product.cuh"
#include "lowtide/engine/cuda/statistics.cuh"

namespace lowtide::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLayers = layers_per_launch(sizeof(WeightLayer));

struct Layers : LayerBlocks<kLayers> {
  WeightLayer layer[kLayers];
};
static_assert(sizeof(Layers) <= kArgumentBytes);

// The layer that this block works on, and its number there.
__device__ const WeightLayer& layer_of_block(const Layers& layers, int& block) {
  const int at = layers.layer_of_block();
  block = layers.block_of_layer(at);
  return layers.layer[at];
}

__host__ __device__ int forward_rows(const WeightLayer& w) {
  return round_up(w.outputs, forward_columns(w.outputs));
}
__host__ __device__ int forward_depth(int taps, int inputs) { return round_up(taps * inputs, kChunk); }

// Byte of the packed form at which the code of (row, k) stands: lane 4 column + k / 4 % 4 of a tile of 8 columns and 32 along
// the sum reads the eight bytes k % 4 and 16 + k % 4.
__device__ long long forward_place(int row, int k, int rows) {
  const ColumnPlace place(row);
  const long long tile = static_cast<long long>(k / 32) * (rows / 8) + place.tile;
  const int lane = place.column * 4 + k % 16 / 4;
  return (tile * kWarp + lane) * 8 + k % 32 / 16 * 4 + k % 4;
}

// The codes of a row: of floats, by their range, which its block has measured; or those that are there.
class RowCodes {
 public:
  __device__ RowCodes(const WeightLayer& w, int row, int length)
      : weight_(w.weight == nullptr ? nullptr : w.weight + static_cast<long long>(row) * length),
        code_(w.code + static_cast<long long>(row) * length),
        top_(w.bits.top()) {
    if (weight_ == nullptr) return;
    float low = INFINITY, high = -INFINITY, range;
    bool poisoned = false;
    for (int k = static_cast<int>(threadIdx.x); k < length; k += kThreads) {
      low = fminf(low, weight_[k]);
      high = fmaxf(high, weight_[k]);
      poisoned |= !isfinite(weight_[k]);
    }
    const BlockExtremes ends = join_block(poisoned ? NAN : low, poisoned ? NAN : high);
    store_range(ends.low, ends.high, &min_, &range);
    scale_ = scale_of(range, top_);
    if (threadIdx.x == 0) {
      w.scale[row] = scale_;
      w.offset[row] = min_;
    }
  }
  __device__ std::uint8_t at(int k) const {
    if (weight_ == nullptr) return code_[k];
    const float v = __fdiv_rn(__fsub_rn(weight_[k], min_), scale_);
    return code_[k] = static_cast<std::uint8_t>(__float2int_rn(fminf(fmaxf(v, 0.0f), top_)));
  }

 private:
  const float* weight_;
  std::uint8_t* code_;
  float top_, min_ = 0, scale_ = 0;
};

// A block a row: its range, its codes, their place among the packed ones, sums by tap.
__global__ void encode_rows(const __grid_constant__ Layers layers) {
  int row = 0;
  const WeightLayer& w = layer_of_block(layers, row);
  const int taps = w.kernel_rows * w.kernel_cols, length = taps * w.inputs,
            depth = forward_depth(taps, w.inputs);
  const int rows = forward_rows(w), thread = static_cast<int>(threadIdx.x);
  auto* packed = reinterpret_cast<std::uint8_t*>(w.forward);
  if (row >= w.outputs) {
    for (int k = thread; k < depth; k += kThreads) packed[forward_place(row, k, rows)] = 0;
    return;
  }
  extern __shared__ int tap_sums[];
  for (int tap = thread; tap < taps; tap += kThreads) tap_sums[tap] = 0;
  __syncthreads();
  const RowCodes codes(w, row, length);
  for (int k = thread; k < depth; k += kThreads) {
    std::uint8_t code = 0;
    if (k < length) {
      code = codes.at(k);
      atomicAdd(&tap_sums[k / w.inputs], static_cast<int>(code));
    }
    if (w.forward != nullptr) packed[forward_place(row, k, rows)] = code;
  }
  __syncthreads();
  const int pitch = w.kernel_cols + 1;
  for (int i = thread; i < (w.kernel_rows + 1) * pitch; i += kThreads) {
    int sum = 0;
    for (int r = 0; r < i / pitch; ++r) {
      for (int c = 0; c < i % pitch; ++c) sum += tap_sums[r * w.kernel_cols + c];
    }
    w.tap_prefix[i * w.outputs + row] = sum;
  }
}

// The power of two that brings a layer's largest value to 2^21 .. 2^22.
__device__ float limb_factor(const WeightLayer& w) {
  float largest = 0;
  for (int row = static_cast<int>(threadIdx.x); row < w.outputs; row += static_cast<int>(blockDim.x)) {
    const float low = w.offset[row], high = low + w.scale[row] * w.bits.top();
    largest = fmaxf(largest, fmaxf(fabsf(low), fabsf(high)));
  }
  const float all = join_block(0.0f, largest).high;
  return all > 0 && isfinite(all) ? exp2f(static_cast<float>(21 - ilogbf(all))) : 1.0f;
}

__device__ float decoded(const WeightLayer& w, long long at, int row) {
  return __fadd_rn(__fmul_rn(static_cast<float>(w.code[at]), w.scale[row]), w.offset[row]);
}

// Sums over outputs, by tap and input; and the scale of the limbs. Warps share the outputs, in an order that shapes decide.
constexpr int kSumThreads = 512, kSumGroups = kSumThreads / kWarp;
__global__ void sum_taps(const __grid_constant__ Layers layers) {
  int block = 0;
  const WeightLayer& w = layer_of_block(layers, block);
  __shared__ double sums[kSumGroups][kWarp];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, group = thread / kWarp;
  const int length = w.kernel_rows * w.kernel_cols * w.inputs, at = block * kWarp + lane;
  double sum = 0;
  if (at < length) {
#pragma unroll 8
    for (int row = group; row < w.outputs; row += kSumGroups)
      sum += static_cast<double>(decoded(w, static_cast<long long>(row) * length + at, row));
  }
  sums[group][lane] = sum;
  __syncthreads();
  if (group == 0 && at < length) {
    for (int i = 1; i < kSumGroups; ++i) sum += sums[i][lane];
    w.tap_value[at] = static_cast<float>(sum);
  }
  if (block != 0) return;
  const float factor = limb_factor(w);
  if (thread == 0) *w.limb_scale = 1 / factor;
}

// A value as a whole number below 2^22, in signed limbs of a byte.
struct Limbs {
  int limb[kLimbs];

  __device__ explicit Limbs(float value) {
    const int number = __float2int_rn(value);
    limb[2] = static_cast<signed char>(number & 0xff);
    const int rest = (number - limb[2]) >> 8;
    limb[1] = static_cast<signed char>(rest & 0xff);
    limb[0] = (rest - limb[1]) >> 8;
  }
};

__host__ __device__ int limb_columns(int inputs) { return round_up(inputs, forward_columns(inputs)); }
__host__ __device__ int limb_depth(int taps, int outputs) { return round_up(taps * outputs, kChunk); }

// For the input gradient: columns are inputs, and along the sum run taps and outputs. A block packs 32 along the sum of 64 columns,
// which it reads in the order in which they lie.
constexpr int kPackDepth = 32, kPackColumns = 64;
__host__ __device__ int pack_blocks(const WeightLayer& w) {
  return limb_depth(w.kernel_rows * w.kernel_cols, w.outputs) / kPackDepth *
         divide_up(limb_columns(w.inputs), kPackColumns);
}
__global__ void pack_limbs(const __grid_constant__ Layers layers) {
  int block = 0;
  const WeightLayer& w = layer_of_block(layers, block);
  const int taps = w.kernel_rows * w.kernel_cols, depth = taps * w.outputs;
  const int column_blocks = divide_up(limb_columns(w.inputs), kPackColumns), step = block / column_blocks,
            first_input = block % column_blocks * kPackColumns;
  const float factor = 1 / *w.limb_scale;
  __shared__ float values[kPackDepth][kPackColumns + 1];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kPackDepth * kPackColumns; i += kThreads) {
    const int k = step * kPackDepth + i / kPackColumns, input = first_input + i % kPackColumns;
    const int row = k % w.outputs, tap = k / w.outputs;
    const bool there = k < depth && input < w.inputs;
    values[i / kPackColumns][i % kPackColumns] =
        there ? decoded(w, (static_cast<long long>(row) * taps + tap) * w.inputs + input, row) * factor
              : 0.0f;
  }
  __syncthreads();
  // By step along the sum and sixteen columns, then by limb; each as packed for the output. A thread packs words of four.
  const int pairs = limb_columns(w.inputs) / 16, first_pair = first_input / 16;
  for (int pair = first_pair; pair < min(pairs, first_pair + kPackColumns / 16); ++pair) {
    const int tile = thread / (2 * kWarp), lane = thread / 2 % kWarp;
    const int k = thread % 2 * 16 + lane % 4 * 4, input = channel_at(2 * pair + tile, lane / 4);
    unsigned packed[kLimbs]{};
    int sum[kLimbs]{};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Limbs of(values[k + i][input - first_input]);
#pragma unroll
      for (int d = 0; d < kLimbs; ++d) {
        packed[d] |= static_cast<unsigned>(of.limb[d] & 0xff) << (8 * i);
        sum[d] += of.limb[d];
      }
    }
#pragma unroll
    for (int d = 0; d < kLimbs; ++d) {
      w.limbs[((static_cast<long long>(step) * pairs + pair) * kLimbs + d) * kThreads + thread] = packed[d];
      if (w.limb_sums == nullptr) continue;
      for (int other = 1; other < 8; other *= 2) sum[d] += __shfl_xor_sync(0xffffffffu, sum[d], other);
      if (thread % 8 == 0) atomicAdd(w.limb_sums + d * w.inputs + input, sum[d]);
    }
  }
}
static_assert(kThreads == 2 * 2 * kWarp);  // words of two tiles of eight columns

template <typename Blocks, typename Kernel>
void launch(const WeightLayer* layers, int count, const Blocks& blocks, Kernel kernel, int threads,
            std::size_t shared, cudaStream_t stream) {
  for (int first = 0; first < count; first += kLayers) {
    Layers of{};
    for (int i = first; i < count && !of.is_full(); ++i) {
      of.layer[of.count] = layers[i];
      of.add(blocks(layers[i]));
    }
    if (of.blocks() > 0) kernel<<<of.blocks(), static_cast<unsigned>(threads), shared, stream>>>(of);
  }
  check_launch("encode_weights");
}

}  // namespace

std::size_t packed_forward_bytes(int outputs, int taps, int inputs) {
  return static_cast<std::size_t>(round_up(outputs, forward_columns(outputs))) *
         static_cast<std::size_t>(forward_depth(taps, inputs));
}

std::size_t packed_limb_bytes(int outputs, int taps, int inputs) {
  return static_cast<std::size_t>(kLimbs * limb_depth(taps, outputs)) *
         static_cast<std::size_t>(limb_columns(inputs));
}

void encode_weights(const WeightLayer* layers, int count, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  constexpr std::size_t kTapSumBytes = kMostTaps * sizeof(int);
  launch(
      layers, count, [](const WeightLayer& w) { return forward_rows(w); }, encode_rows, kThreads,
      kTapSumBytes, stream);
  launch(
      layers, count,
      [](const WeightLayer& w) {
        return w.limbs == nullptr ? 0 : divide_up(w.kernel_rows * w.kernel_cols * w.inputs, kWarp);
      },
      sum_taps, kSumThreads, 0, stream);
  launch(
      layers, count, [](const WeightLayer& w) { return w.limbs == nullptr ? 0 : pack_blocks(w); }, pack_limbs,
      kThreads, 0, stream);
}

}  // namespace lowtide::cuda
