// The gradient at a convolution's input. The weight's scale runs along the sum, so its values are multiplied, not its codes:
// each as three limbs of a byte, whose sums are integers. In the same pass: another reader's gradient is added, ReLU's
// mask is applied, and the sums are taken that the normalisation before needs.
#include <algorithm>
#include <stdexcept>

#include "lowtide/engine/cuda/gather.cuh"
#include "lowtide/engine/cuda/statistics.cuh"
#include "lowtide/engine/cuda/tiles.cuh"

namespace lowtide::cuda {
namespace {

// Input pixels of one dimension, told apart by the taps that lead to outputs: the remainder by the stride says which, and at both
// ends some lead past the edge.
struct StridedDimension {
  int size, kernel, stride, pad, results;
};
struct StridedKinds {
  static constexpr int kMostStride = 4, kMostKernel = 32, kMostKinds = 32;
  int stride = 1, first[kMostStride + 1]{};
  EdgeKinds of[kMostStride];
  unsigned taps[kMostKinds]{};  // that lead to outputs, a bit each

  // Of steps and kernels that are not above the most.
  explicit StridedKinds(const StridedDimension& d) : stride(d.stride) {
    const auto leads = [&](int at) {
      unsigned result = 0;
      for (int tap = 0; tap < d.kernel; ++tap) {
        const int from = at + d.pad - tap;
        if (from >= 0 && from % stride == 0 && from / stride < d.results) result |= 1u << tap;
      }
      return result;
    };
    for (int phase = 0; phase < stride; ++phase) {
      of[phase] =
          EdgeKinds(divide_up(d.size - phase, stride), [&](int at) { return leads(at * stride + phase); });
      first[phase + 1] = first[phase] + of[phase].count();
      for (int i = 0; i < of[phase].count() && first[phase] + i < kMostKinds; ++i)
        taps[first[phase] + i] = leads(of[phase].example(i) * stride + phase);
    }
  }
  __host__ __device__ int count() const { return first[stride]; }
  __device__ int kind(int at) const {
    if (stride == 1) return of[0].kind(at);
    const int phase = at % stride;
    return first[phase] + of[phase].kind(at / stride);
  }
};

struct GradientKinds {
  StridedKinds rows, cols;
  __host__ __device__ int count() const { return rows.count() * cols.count(); }
};
GradientKinds kinds_of(const ConvGeometry& g) {
  return {.rows = StridedKinds({.size = g.height,
                                .kernel = g.kernel_rows,
                                .stride = g.stride_rows,
                                .pad = g.pad_rows,
                                .results = g.rows}),
          .cols = StridedKinds({.size = g.width,
                                .kernel = g.kernel_cols,
                                .stride = g.stride_cols,
                                .pad = g.pad_cols,
                                .results = g.cols})};
}

// The constants of a block's columns, in shared memory.
template <int kColumns, int kThreads>
struct ColumnConstants {
  float *mean, *factor, *bias;  // of the normalisation before
  float* values;      // Σ of the weight's values over outputs and the taps of a pixel, by kind of pixel
  float* tap_values;  // Σ of the weight's values over outputs, by tap

  __host__ __device__ static std::size_t bytes(int taps, int kinds) {
    return sizeof(float) * static_cast<std::size_t>((3 + kinds + taps) * kColumns);
  }
  __device__ ColumnConstants(void* memory, int kinds)
      : mean(static_cast<float*>(memory)),
        factor(mean + kColumns),
        bias(factor + kColumns),
        values(bias + kColumns),
        tap_values(values + kinds * kColumns) {}

  __device__ static Four four(const float* of, int column) { return Four::load(of + column, 4, true); }

  // By all threads.
  __device__ void fill(const InputGradientArguments& a, const GradientKinds& kinds, int first_channel) const {
    const int thread = static_cast<int>(threadIdx.x), column = thread % kColumns,
              channel = first_channel + column;
    const bool there = channel < a.g.inputs;
    constexpr int kTogether = kThreads / kColumns;
#pragma unroll 4
    for (int tap = thread / kColumns; tap < a.g.taps(); tap += kTogether)
      tap_values[tap * kColumns + column] = there ? __ldg(a.w.tap_value + tap * a.g.inputs + channel) : 0.0f;
    if (thread < kColumns) {
      const bool has_norm = there && a.sums.work != nullptr;
      mean[column] = has_norm ? a.sums.norm.mean[channel] : 0.0f;
      factor[column] = has_norm ? a.sums.norm.factor[channel] : 0.0f;
      bias[column] = has_norm ? a.sums.norm.bias[channel] : 0.0f;
    }
    __syncthreads();
    const int col_kinds = kinds.cols.count();
    for (int kind = thread / kColumns; kind < kinds.count(); kind += kTogether) {
      const unsigned rows = kinds.rows.taps[kind / col_kinds], cols = kinds.cols.taps[kind % col_kinds];
      float sum = 0;
      for (int row = 0; row < a.g.kernel_rows; ++row) {
        for (int col = 0; col < a.g.kernel_cols; ++col)
          sum += (rows >> row & cols >> col & 1) != 0
                     ? tap_values[(row * a.g.kernel_cols + col) * kColumns + column]
                     : 0.0f;
      }
      values[kind * kColumns + column] = sum;
    }
  }
};

// Which of four neighbours ReLU let pass, a bit each, where it kept them.
__device__ unsigned kept_signs(const std::uint8_t* positive, long long at, int left, bool aligned) {
  if (aligned) return left > 0 ? positive[at / 8] >> (at % 8) & 0xfu : 0u;
  unsigned signs = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j < left) signs |= (positive[(at + j) / 8] >> ((at + j) % 8) & 1u) << j;
  }
  return signs;
}

// Another reader's gradient, added at every pixel or at those a stride apart.
struct Other {
  const float* value;
  int rows, cols;
  bool strided;
  PixelDivisor pixels;
  Divisor stride_rows, stride_cols;

  // The number of its pixel; below 0 where it has none.
  __device__ int pixel(int number) const {
    if (value == nullptr || number < 0) return -1;
    if (!strided) return number;
    int image, row, col;
    pixels.split(number, image, row, col);
    const int other_row = stride_rows.of(row), other_col = stride_cols.of(col);
    const bool there = other_row * static_cast<int>(stride_rows.divisor) == row &&
                       other_col * static_cast<int>(stride_cols.divisor) == col;
    return there ? (image * rows + other_row) * cols + other_col : -1;
  }
};

// Chunks in shared memory: weights take three bytes a value, and more blocks on a multiprocessor are worth more than a deeper queue.
constexpr int kStages = 2;

template <typename Rows, int kNTiles, int kColWarps>
struct Block {
  static constexpr int kThreads = kWarp * kRowWarps * kColWarps, kColumns = 8 * kNTiles * kColWarps;
  using Constants = ColumnConstants<kColumns, kThreads>;
  using Stages = ProductStages<Rows, kThreads, kStages, kColumns * 32 * kLimbs, true>;
};

// Sums for the normalisation before: of the gradient, and of it times the distance of that normalisation's input from its mean.
// Joins the eight lanes that hold rows of the same four columns: lane q + 4 (4 c + 2 b + a) has sum c of column 2 a + b.
__device__ float join_rows(const float (&sum)[4], const float (&with_input)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool first = (lane & 16) != 0, second = (lane & 8) != 0, third = (lane & 4) != 0;
  float four[4], two[2];
#pragma unroll
  for (int j = 0; j < 4; ++j)
    four[j] =
        (first ? with_input[j] : sum[j]) + __shfl_xor_sync(0xffffffffu, first ? sum[j] : with_input[j], 16);
#pragma unroll
  for (int j = 0; j < 2; ++j)
    two[j] = (second ? four[2 * j + 1] : four[2 * j]) +
             __shfl_xor_sync(0xffffffffu, second ? four[2 * j] : four[2 * j + 1], 8);
  return (third ? two[1] : two[0]) + __shfl_xor_sync(0xffffffffu, third ? two[0] : two[1], 4);
}

// Adds a block's sums; the last one of all makes of them what the normalisation's gradient needs. A lane has one of every sixteen
// columns.
template <int kColumns, int kJoined>
__device__ void add_sums(const InputGradientArguments& a, const float (&joined)[kJoined], int first_channel,
                         int warp_column, void* memory) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp,
            row_warp = thread / kWarp % kRowWarps;
  auto(*shared_sums)[2][kColumns] = static_cast<float(*)[2][kColumns]>(memory);
  const int in_sixteen = lane % 4 * 4 + lane / 4 % 2 * 2 + lane / 8 % 2;
#pragma unroll
  for (int p = 0; p < kJoined; ++p)
    shared_sums[row_warp][lane / 16][warp_column + p * 16 + in_sixteen] = joined[p];
  __syncthreads();
  const ChannelWork work(a.sums.work, a.g.inputs);
  if (thread < kColumns && first_channel + thread < a.g.inputs) {
    double sum = 0, with_input = 0;
    for (int i = 0; i < kRowWarps; ++i) {
      sum += static_cast<double>(shared_sums[i][0][thread]);
      with_input += static_cast<double>(shared_sums[i][1][thread]);
    }
    add_gradient_sums(work, static_cast<int>(blockIdx.x) % kCopies, first_channel + thread, sum, with_input);
  }
  if (is_last_block(work.blocks_done, gridDim.x * gridDim.y))
    finish_gradient_sums(a.sums, a.g.inputs, a.g.input_pixels());
}

template <typename Rows, int kMTiles, int kNTiles, int kColWarps>
__global__ void __launch_bounds__(kWarp* kRowWarps* kColWarps, (kResidentBlocks<kNTiles, kColWarps>))
    input_gradient_kernel(const __grid_constant__ InputGradientArguments a,
                          const __grid_constant__ typename Rows::Shape shape,
                          const __grid_constant__ GradientKinds kinds, const __grid_constant__ Other other,
                          int weight_bytes) {
  using Of = Block<Rows, kNTiles, kColWarps>;
  extern __shared__ __align__(16) std::uint8_t memory[];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int col_warp = warp / kRowWarps, first_channel = static_cast<int>(blockIdx.y) * Of::kColumns;
  const typename Of::Constants constants(memory, kinds.count());
  const typename Of::Stages stages(shape, memory + Of::Constants::bytes(a.g.taps(), kinds.count()),
                                   weight_bytes, a.w.limbs,
                                   round_up(a.g.inputs, forward_columns(a.g.inputs)) * 32 * kLimbs);
  Rows rows(shape);
  // Codes are centred, so that sums are about as large as the result and not small differences of large numbers. A code is below
  // 2^bits and bias half of that: code + 128 - bias stays a byte, and its first bit is the sign, turned round.
  const unsigned bias = (static_cast<unsigned>(a.dy.bits.top()) + 1) / 2, to_128 = (128 - bias) * 0x01010101u;

  int product[kLimbs][kMTiles][kNTiles][4]{};
  float joined[kNTiles / 2]{};
  // dy = scale (code - bias) + centre
  const float scale = *a.dy.scale, centre = *a.dy.offset + static_cast<float>(bias) * scale;
  const float limb_scale = scale * *a.w.limb_scale;
  const bool takes_sums = a.sums.work != nullptr, has_kinds = kinds.count() > 1;
  const int warp_column = col_warp * 8 * kNTiles, first_column = warp_column + lane % 4 * 4;

  // Which of four neighbours ReLU lets pass, a bit each.
  const auto passing = [&](long long at, int left, const Four& y, const Four& mean, int column) -> unsigned {
    if (!a.sums.relu) return 0xfu;
    if (a.sums.positive != nullptr) return kept_signs(a.sums.positive, at, left, Rows::kAligned);
    const Four factor = constants.four(constants.factor, column),
               bias_of = constants.four(constants.bias, column);
    unsigned result = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      result |= mapped(y.value[j], mean.value[j], factor.value[j], bias_of.value[j]) > 0 ? 1u << j : 0u;
    return result;
  };
  const auto finish_tile = [&](int tile) {
    constexpr int kRows = 2 * kMTiles;
    const typename Rows::Results results(rows, tile);
    int number[kRows], other_number[kRows];
    unsigned kind[kMTiles]{};  // of two rows in a word
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      number[i] = results.number(i);
      other_number[i] = other.pixel(number[i]);
      if (has_kinds)
        kind[i / 2] |= static_cast<unsigned>(kinds.rows.kind(results.row(i)) * kinds.cols.count() +
                                             kinds.cols.kind(results.col(i)))
                       << (i % 2 * 16);
    }
#pragma unroll
    for (int p = 0; p < kNTiles / 2; ++p) {
      const int column = first_column + p * 16, channel = first_channel + column, left = a.g.inputs - channel;
      // All that is read of memory is on its way before the first of it is used.
      Four gradient[kRows], added[kRows], y[kRows];
      const auto at_row = [&](int i) { return static_cast<long long>(number[i]) * a.g.inputs + channel; };
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const auto limb = [&](int d) {
            return static_cast<float>(product[d][i / 2][2 * p + j / 2][i % 2 * 2 + j % 2]);
          };
          gradient[i].value[j] = (limb(0) * 256.0f + limb(1)) * 256.0f + limb(2);
        }
        added[i] = y[i] = Four{};
        if (other_number[i] >= 0)
          added[i] = Four::load(other.value + static_cast<long long>(other_number[i]) * a.g.inputs + channel,
                                left, Rows::kAligned);
        if (takes_sums && number[i] >= 0) y[i] = Four::load(a.sums.y + at_row(i), left, Rows::kAligned);
      }
      const Four mean = constants.four(constants.mean, column);
      float sum[4]{}, with_input[4]{};
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (number[i] < 0) continue;
        const unsigned of_row = kind[i / 2] >> (i % 2 * 16) & 0xffffu;
        const Four values = constants.four(constants.values + of_row * Of::kColumns, column);
#pragma unroll
        for (int j = 0; j < 4; ++j)
          gradient[i].value[j] =
              gradient[i].value[j] * limb_scale + (centre * values.value[j] + added[i].value[j]);
        if (takes_sums) {
          const unsigned passes = passing(at_row(i), left, y[i], mean, column);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            gradient[i].value[j] = (passes >> j & 1) != 0 ? gradient[i].value[j] : 0.0f;
            sum[j] += gradient[i].value[j];
            with_input[j] += gradient[i].value[j] * (y[i].value[j] - mean.value[j]);
          }
        }
        gradient[i].store(a.dx + at_row(i), left, Rows::kAligned);
      }
      if (takes_sums) joined[p] += join_rows(sum, with_input);
    }
  };

  const auto load = [&](int item) { stages.load(rows, item, bias); };
  const auto prepare = [&] { constants.fill(a, kinds, first_channel); };
  for_each_item<kStages>(stages.items(), load, prepare, [&](int item) {
    const typename Rows::Chunk of(rows, stages.tile(item), stages.chunk(item));
    const std::uint8_t* from = stages.pixels(item);
    const auto* b =
        reinterpret_cast<const uint2*>(stages.weights(item)) + col_warp * kNTiles * kLimbs * kWarp + lane;
    const int steps = stages.steps(of), first_step = stages.first_step(item, steps);
    for (int step = 0; step < steps; ++step) {
      const int offset = of.offset(first_step + step);
      unsigned e[kMTiles][4];
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        load_matrices(from + rows.place(m) + offset, e[m]);
#pragma unroll
        for (int i = 0; i < 4; ++i) e[m][i] = (e[m][i] + to_128) ^ 0x80808080u;
      }
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
        for (int d = 0; d < kLimbs; ++d) {
          const uint2 w = b[((n / 2 * kLimbs + d) * 2 + n % 2) * kWarp];
#pragma unroll
          for (int m = 0; m < kMTiles; ++m) multiply_both_signed(product[d][m][n], e[m], w.x, w.y);
        }
      }
      b += Of::kColumns * 4 * kLimbs;
    }
    if (!stages.ends_tile(item)) return;
    finish_tile(stages.tile(item));
#pragma unroll
    for (auto& limb : product) {
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) limb[m][n][i] = 0;
        }
      }
    }
  });

  if (takes_sums) add_sums<Of::kColumns>(a, joined, first_channel, warp_column, memory);
}

template <typename Rows, int kNTiles, int kColWarps>
std::size_t block_bytes(const ConvGeometry& g, const GradientKinds& kinds, const typename Rows::Shape& shape,
                        int units) {
  using Of = Block<Rows, kNTiles, kColWarps>;
  return std::max(Of::Constants::bytes(g.taps(), kinds.count()) + Of::Stages::bytes(shape, units),
                  2 * sizeof(float) * kRowWarps * Of::kColumns);
}

template <typename Rows, int kMTiles, int kNTiles, int kColWarps>
void launch(const InputGradientArguments& a, const typename Rows::Shape& shape, int units,
            cudaStream_t stream) {
  using Of = Block<Rows, kNTiles, kColWarps>;
  const ConvGeometry& g = a.g;
  const GradientKinds kinds = kinds_of(g);
  const Other other{.value = a.other,
                    .rows = a.other_rows,
                    .cols = a.other_cols,
                    .strided = a.other_stride_rows != 1 || a.other_stride_cols != 1,
                    .pixels = PixelDivisor(g.height, g.width),
                    .stride_rows = Divisor(a.other_stride_rows),
                    .stride_cols = Divisor(a.other_stride_cols)};
  const int column_blocks = divide_up(g.inputs, Of::kColumns);
  const dim3 grid(
      static_cast<unsigned>(row_blocks(shape.tiles, column_blocks, kResidentBlocks<kNTiles, kColWarps>)),
      static_cast<unsigned>(column_blocks));
  launch_kernel<input_gradient_kernel<Rows, kMTiles, kNTiles, kColWarps>>(
      "conv_input_gradient", grid, Of::kThreads,
      block_bytes<Rows, kNTiles, kColWarps>(g, kinds, shape, units), stream, a, shape, kinds, other,
      Of::Stages::weight_bytes(shape, units));
}

// The most that a chunk has.
int most_units(const PixelTiles& tiles) {
  int units = 0;
  for (int i = 0; i < tiles.phases; ++i) units = std::max(units, tiles.phase[i].units);
  return units;
}

// None where this GPU's blocks have no room for one.
int row_tiles(const ConvGeometry& g, const ProductCut& cut) {
  if (g.inputs % 4 != 0) return 0;
  const PixelTiles tiles = input_gradient_tiles(g, nullptr, cut.m_tiles);
  if (tiles.tiles == 0) return 0;
  std::size_t bytes = 0;
  with_cut<64>(cut, [&](auto m_tiles, auto n_tiles, auto col_warps) {
    using Rows = TileRows<kWarp * kRowWarps * col_warps, m_tiles, kUnitBytes, false>;
    bytes = block_bytes<Rows, n_tiles, col_warps>(g, kinds_of(g), tiles, most_units(tiles));
  });
  return bytes <= most_shared_bytes() ? tiles.tiles : 0;
}

template <int kUnit, bool kStrided>
void launch_tiles(const InputGradientArguments& a, const ProductCut& cut, cudaStream_t stream) {
  PixelTiles tiles = input_gradient_tiles(a.g, a.dy.code, cut.m_tiles);
  const int units = most_units(tiles);
  with_cut<64>(cut, [&](auto m_tiles, auto n_tiles, auto col_warps) {
    constexpr int kMTiles = m_tiles, kNTiles = n_tiles, kColWarps = col_warps,
                  kThreads = kWarp * kRowWarps * kColWarps;
    tiles.set_threads(kThreads);
    launch<TileRows<kThreads, kMTiles, kUnit, kStrided>, kMTiles, kNTiles, kColWarps>(a, tiles, units,
                                                                                      stream);
  });
}

template <int kUnit>
void launch_gather(const InputGradientArguments& a, cudaStream_t stream) {
  const GatherShape shape = gather_shape(a.g, a.dy.code, true);
  const ProductCut cut(a.g.inputs,
                       [&](const ProductCut& option) { return option.m_tiles == 1 ? shape.tiles : 0; });
  with_columns<64>(cut, [&](auto n_tiles, auto col_warps) {
    constexpr int kNTiles = n_tiles, kColWarps = col_warps;
    launch<GatherRows<kWarp * kRowWarps * kColWarps, 1, kUnit, true>, 1, kNTiles, kColWarps>(
        a, shape, kChunk / kUnitBytes, stream);
  });
}

}  // namespace

bool has_conv_input_gradient(const ConvGeometry& g) {
  if (std::max(g.stride_rows, g.stride_cols) > StridedKinds::kMostStride ||
      std::max(g.kernel_rows, g.kernel_cols) > StridedKinds::kMostKernel)
    return false;
  const GradientKinds kinds = kinds_of(g);
  return std::max(kinds.rows.count(), kinds.cols.count()) <= StridedKinds::kMostKinds;
}

void conv_input_gradient(const InputGradientArguments& a, void* opaque_stream) {
  if (!has_conv_input_gradient(a.g))
    throw std::runtime_error("CUDA: there is no kernel for the input gradient of such a convolution");
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  const ProductCut cut(a.g.inputs, [&](const ProductCut& option) { return row_tiles(a.g, option); });
  const int unit = unit_for(a.g.outputs);
  if (cut.exists() && a.g.stride_rows > 1)
    return unit == 16 ? launch_tiles<16, true>(a, cut, stream) : launch_tiles<8, true>(a, cut, stream);
  if (cut.exists())
    return unit == 16 ? launch_tiles<16, false>(a, cut, stream) : launch_tiles<8, false>(a, cut, stream);
  if (unit == 16) return launch_gather<16>(a, stream);
  return unit >= 4 ? launch_gather<4>(a, stream) : launch_gather<1>(a, stream);
}

}  // namespace lowtide::cuda
