// The gradient at a convolution's input. The weight's scale runs along the sum, so its values are multiplied, not its codes:
// each as two halves, which together have a float's digits. In the same pass: another reader's gradient is added, ReLU's
// mask is applied, and the sums are taken that the normalisation before needs.
#include <algorithm>
#include <stdexcept>

#include "lowtide/engine/cuda/gather.cuh"
#include "lowtide/engine/cuda/statistics.cuh"
#include "lowtide/engine/cuda/tiles.cuh"

namespace lowtide::cuda {
namespace {

// Input pixels of one dimension, told apart by the taps that lead to outputs: the remainder by the stride says which, and at both
// ends some lead beside the image.
struct StridedKinds {
  static constexpr int kMostStride = 4, kMostKinds = 32;
  int stride = 1, first[kMostStride + 1]{};
  EdgeKinds of[kMostStride];
  unsigned taps[kMostKinds]{};  // that lead to outputs, a bit each

  StridedKinds(int size, int kernel, int of_stride, int pad, int results) : stride(of_stride) {
    const auto leads = [&](int at) {
      unsigned result = 0;
      for (int tap = 0; tap < kernel; ++tap) {
        const int from = at + pad - tap;
        if (from >= 0 && from % stride == 0 && from / stride < results) result |= 1u << tap;
      }
      return result;
    };
    for (int phase = 0; phase < stride && stride <= kMostStride; ++phase) {
      of[phase] =
          EdgeKinds(divide_up(size - phase, stride), [&](int at) { return leads(at * stride + phase); });
      first[phase + 1] = first[phase] + of[phase].count();
      for (int i = 0; i < of[phase].count() && first[phase] + i < kMostKinds; ++i)
        taps[first[phase] + i] = leads(of[phase].example(i) * stride + phase);
    }
    if (stride > kMostStride || count() > kMostKinds)
      throw std::runtime_error(
          "CUDA: there is no kernel for the input gradient of a convolution of such steps");
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

// Chunks in shared memory: weights take four bytes a value, and more blocks on a multiprocessor are worth more than a deeper queue.
constexpr int kStages = 2;

template <typename Rows, int kNTiles, int kColWarps>
struct Block {
  static constexpr int kThreads = kWarp * kRowWarps * kColWarps, kColumns = 8 * kNTiles * kColWarps;
  using Constants = ColumnConstants<kColumns, kThreads>;
  // A unit of 16 along the sum is a step, of 64 bytes a column: two halves a value.
  using Stages = ProductStages<Rows, kThreads, kStages, 1, kColumns * 64>;
};

// Adds a block's sums for the normalisation before; the last one of all makes of them what its gradient needs.
template <int kColumns, int kChannels>
__device__ void add_sums(const InputGradientArguments& a, const float (&sum)[kChannels],
                         const float (&with_input)[kChannels], int first_channel, int first_column,
                         void* memory) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp,
            row_warp = thread / kWarp % kRowWarps;
  auto(*shared_sums)[kColumns] = static_cast<double2(*)[kColumns]>(memory);
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    float all = sum[i], products = with_input[i];
#pragma unroll
    for (int step = 4; step < kWarp; step *= 2) {
      all += __shfl_xor_sync(0xffffffffu, all, step);
      products += __shfl_xor_sync(0xffffffffu, products, step);
    }
    if (lane < 4)
      shared_sums[row_warp][first_column + i / 4 * 16 + i % 4] =
          make_double2(static_cast<double>(all), static_cast<double>(products));
  }
  __syncthreads();
  const ChannelWork work(a.sums.work, a.g.inputs);
  if (thread < kColumns && first_channel + thread < a.g.inputs) {
    double2 all = shared_sums[0][thread];
    for (int i = 1; i < kRowWarps; ++i) {
      all.x += shared_sums[i][thread].x;
      all.y += shared_sums[i][thread].y;
    }
    add_gradient_sums(work, static_cast<int>(blockIdx.x) % kCopies, first_channel + thread, all.x, all.y);
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
                                   weight_bytes, a.w.backward,
                                   round_up(a.g.inputs, forward_columns(a.g.inputs)) * 64);
  Rows rows(shape);
  // Codes are centred, so that sums are about as large as the result and not small differences of large numbers.
  const unsigned bias = (static_cast<unsigned>(a.dy.bits.top()) + 1) / 2, minus = minus_bias(bias);

  float product[kMTiles][kNTiles][4]{};
  float sum[2 * kNTiles]{}, with_input[2 * kNTiles]{};
  // dy = scale (code - bias) + centre
  const float scale = *a.dy.scale, centre = *a.dy.offset + static_cast<float>(bias) * scale;
  const float plane_scale = scale * *a.w.plane_scale;
  const bool takes_sums = a.sums.work != nullptr, has_kinds = kinds.count() > 1;
  const int first_column = col_warp * 8 * kNTiles + lane % 4 * 4;

  // Which of four neighbours ReLU lets pass, a bit each.
  const auto passing = [&](long long at, int left, const Four& y, int column) -> unsigned {
    if (!a.sums.relu) return 0xfu;
    if (a.sums.positive != nullptr) return kept_signs(a.sums.positive, at, left, Rows::kAligned);
    const Four mean = constants.four(constants.mean, column),
               factor = constants.four(constants.factor, column),
               bias_of = constants.four(constants.bias, column);
    unsigned result = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      result |= mapped(y.value[j], mean.value[j], factor.value[j], bias_of.value[j]) > 0 ? 1u << j : 0u;
    return result;
  };
  const auto finish_tile = [&](int tile) {
    const typename Rows::Results results(rows, tile);
#pragma unroll
    for (int i = 0; i < 2 * kMTiles; ++i) {
      const int number = results.number(i), other_number = other.pixel(number);
      const int kind =
          has_kinds ? kinds.rows.kind(results.row(i)) * kinds.cols.count() + kinds.cols.kind(results.col(i))
                    : 0;
      if (number < 0) continue;
      const long long row_at = static_cast<long long>(number) * a.g.inputs + first_channel + first_column;
      const float* other_at =
          other.value + static_cast<long long>(other_number) * a.g.inputs + first_channel + first_column;
#pragma unroll
      for (int p = 0; p < kNTiles / 2; ++p) {
        const int column = first_column + p * 16, left = a.g.inputs - first_channel - column;
        Four added{}, y{};
        if (other_number >= 0) added = Four::load(other_at + p * 16, left, Rows::kAligned);
        if (takes_sums) y = Four::load(a.sums.y + row_at + p * 16, left, Rows::kAligned);
        const Four values = constants.four(constants.values + kind * Of::kColumns, column);
        Four gradient;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          gradient.value[j] = product[i / 2][2 * p + j / 2][i % 2 * 2 + j % 2] * plane_scale +
                              (centre * values.value[j] + added.value[j]);
        if (takes_sums) {
          const unsigned passes = passing(row_at + p * 16, left, y, column);
          const Four mean = constants.four(constants.mean, column);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            gradient.value[j] = (passes >> j & 1) != 0 ? gradient.value[j] : 0.0f;
            sum[4 * p + j] += gradient.value[j];
            with_input[4 * p + j] += gradient.value[j] * (y.value[j] - mean.value[j]);
          }
        }
        gradient.store(a.dx + row_at + p * 16, left, Rows::kAligned);
      }
    }
  };

  const auto load = [&](int item, int stage) { stages.load(rows, item, stage, bias); };
  const auto prepare = [&] { constants.fill(a, kinds, first_channel); };
  for_each_item<kStages>(stages.items(), load, prepare, [&](int item, int stage) {
    const typename Rows::Chunk of(rows, stages.tile(item), stages.chunk(item));
    const std::uint8_t* from = stages.pixels(stage);
    const auto* b = reinterpret_cast<const uint4*>(stages.weights(stage)) + col_warp * kNTiles * kWarp + lane;
    const int units = of.units();
    for (int pair = 0; 2 * pair < units; ++pair) {
      const int offset = of.offset(pair);
      unsigned pixels[kMTiles][4];
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) load_matrices(from + rows.place(m) + offset, pixels[m]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int unit = 2 * pair + half;
        if (unit == units) break;
        unsigned e[kMTiles][4];
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) {
          e[m][0] = halves_of_low_bytes(pixels[m][half * 2], minus);
          e[m][1] = halves_of_low_bytes(pixels[m][half * 2 + 1], minus);
          e[m][2] = halves_of_high_bytes(pixels[m][half * 2], minus);
          e[m][3] = halves_of_high_bytes(pixels[m][half * 2 + 1], minus);
        }
        uint4 w[kNTiles];
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) w[n] = b[(unit * kNTiles * kColWarps + n) * kWarp];
          // What is added to the same sums comes as late as it can: it waits for the product before it.
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
          for (int m = 0; m < kMTiles; ++m)
            multiply_halves(product[m][n], e[m][0], e[m][1], e[m][2], e[m][3], w[n].x, w[n].y);
        }
#pragma unroll
        for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
          for (int m = 0; m < kMTiles; ++m)
            multiply_halves(product[m][n], e[m][0], e[m][1], e[m][2], e[m][3], w[n].z, w[n].w);
        }
      }
    }
    if (!stages.ends_tile(item)) return;
    finish_tile(stages.tile(item));
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) product[m][n][i] = 0;
      }
    }
  });

  if (takes_sums) add_sums<Of::kColumns>(a, sum, with_input, first_channel, first_column, memory);
}

template <typename Rows, int kMTiles, int kNTiles, int kColWarps>
void launch(const InputGradientArguments& a, const typename Rows::Shape& shape, int units,
            cudaStream_t stream) {
  using Of = Block<Rows, kNTiles, kColWarps>;
  const ConvGeometry& g = a.g;
  const GradientKinds kinds{{g.height, g.kernel_rows, g.stride_rows, g.pad_rows, g.rows},
                            {g.width, g.kernel_cols, g.stride_cols, g.pad_cols, g.cols}};
  const Other other{a.other,
                    a.other_rows,
                    a.other_cols,
                    a.other_stride_rows != 1 || a.other_stride_cols != 1,
                    PixelDivisor(g.height, g.width),
                    Divisor(a.other_stride_rows),
                    Divisor(a.other_stride_cols)};
  const int column_blocks = divide_up(g.inputs, Of::kColumns);
  const dim3 grid(static_cast<unsigned>(row_blocks(shape.tiles, column_blocks)),
                  static_cast<unsigned>(column_blocks));
  const std::size_t bytes = Of::Constants::bytes(g.taps(), kinds.count()) + Of::Stages::bytes(shape, units);
  launch_product<input_gradient_kernel<Rows, kMTiles, kNTiles, kColWarps>>(
      "conv_input_gradient", grid, Of::kThreads, std::max(bytes, sizeof(double2) * kRowWarps * Of::kColumns),
      stream, a, shape, kinds, other, Of::Stages::weight_bytes(units));
}

template <int kUnit, bool kStrided>
void launch_tiles(const InputGradientArguments& a, const ProductCut& cut, cudaStream_t stream) {
  PixelTiles tiles = input_gradient_tiles(a.g, a.dy.code, cut.m_tiles);
  int units = 0;
  for (int i = 0; i < tiles.phases; ++i) units = std::max(units, tiles.phase[i].units);
  with_cut(cut, [&](auto m_tiles, auto n_tiles, auto col_warps) {
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
  const ProductCut cut(a.g.inputs, [&](int m_tiles) { return m_tiles == 1 ? shape.tiles : 0; });
  with_columns(cut, [&](auto n_tiles, auto col_warps) {
    constexpr int kNTiles = n_tiles, kColWarps = col_warps;
    launch<GatherRows<kWarp * kRowWarps * kColWarps, 1, kUnit, true>, 1, kNTiles, kColWarps>(
        a, shape, kChunk / kUnitBytes, stream);
  });
}

}  // namespace

void conv_input_gradient(const InputGradientArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  const ProductCut cut(a.g.inputs, [&](int m_tiles) {
    return a.g.inputs % 4 == 0 ? input_gradient_tiles(a.g, a.dy.code, m_tiles).tiles : 0;
  });
  const int unit = unit_for(a.g.outputs);
  if (cut.exists() && a.g.stride_rows > 1)
    return unit == 16 ? launch_tiles<16, true>(a, cut, stream) : launch_tiles<8, true>(a, cut, stream);
  if (cut.exists())
    return unit == 16 ? launch_tiles<16, false>(a, cut, stream) : launch_tiles<8, false>(a, cut, stream);
  if (unit == 16) return launch_gather<16>(a, stream);
  return unit >= 4 ? launch_gather<4>(a, stream) : launch_gather<1>(a, stream);
}

}  // namespace lowtide::cuda
