// The gradient at a convolution's input. The weight's scale runs along the sum, so its values are multiplied, not its codes:
// each as two halves, which together have a float's digits. In the same pass: another reader's gradient is added, ReLU's
// mask is applied, and the sums are taken that the normalisation before needs.
#include "lowtide/engine/cuda/gather.cuh"
#include "lowtide/engine/cuda/launch.h"
#include "lowtide/engine/cuda/statistics.cuh"

namespace lowtide::cuda {
namespace {

// The taps, in one dimension, that lead from an input pixel to an output pixel: first, first + stride, … before end.
struct TapRun {
  int first, end;

  __device__ TapRun(int at, int pad, int stride, int taps, int results) {
    const int from = at + pad;  // tap t leads to output (from - t) / stride
    const int least = max(0, from - (results - 1) * stride);
    first = stride == 1 ? least : least + ((from - least) % stride + stride) % stride;
    const int last = min(taps - 1, from);
    end = last < first ? first : stride == 1 ? last + 1 : first + ((last - first) / stride + 1) * stride;
  }
  // Of some taps a stride of 1 apart, at most three, in an image of more than one pixel: all, without the first, without the
  // last.
  __device__ int kind(int taps) const { return first > 0 ? 1 : end < taps ? 2 : 0; }
};

// The sums of the taps' values for every kind of pixel, where there are few.
constexpr int kKinds = 9;
__host__ __device__ inline bool has_kinds(const ConvGeometry& g) {
  const bool is_3x3 = g.kernel_rows == 3 && g.kernel_cols == 3 && g.pad_rows == 1 && g.pad_cols == 1 &&
                      g.height > 1 && g.width > 1;
  const bool is_1x1 = g.taps() == 1 && g.pad_rows == 0 && g.pad_cols == 0;
  return g.stride_rows == 1 && g.stride_cols == 1 && (is_3x3 || is_1x1);
}

struct Pixel {
  bool there;
  long long at;        // of its first channel
  const float* other;  // another reader's gradient here, or nothing
  TapRun rows, cols;

  __device__ Pixel(const InputGradientArguments& a, int pixel, int image, int row, int col)
      : there(pixel < a.g.input_pixels()),
        at(static_cast<long long>(pixel) * a.g.inputs),
        other(nullptr),
        rows(row, a.g.pad_rows, a.g.stride_rows, a.g.kernel_rows, a.g.rows),
        cols(col, a.g.pad_cols, a.g.stride_cols, a.g.kernel_cols, a.g.cols) {
    if (a.other == nullptr || !there) return;
    const int other_row = row / a.other_stride_rows, other_col = col / a.other_stride_cols;
    if (other_row * a.other_stride_rows != row || other_col * a.other_stride_cols != col) return;
    other =
        a.other +
        ((static_cast<long long>(image) * a.other_rows + other_row) * a.other_cols + other_col) * a.g.inputs;
  }
};

// Σ of the weight's values over outputs and the taps of a pixel.
__device__ float tap_values(const InputGradientArguments& a, const Pixel& pixel, int channel) {
  float sum = 0;
  for (int row = pixel.rows.first; row < pixel.rows.end; row += a.g.stride_rows) {
    for (int col = pixel.cols.first; col < pixel.cols.end; col += a.g.stride_cols)
      sum += __ldg(a.w.tap_value + (row * a.g.kernel_cols + col) * a.g.inputs + channel);
  }
  return sum;
}

// The same by the kind of pixel.
__device__ float kind_values(const InputGradientArguments& a, int kind, int channel) {
  if (channel >= a.g.inputs) return 0;
  if (a.g.taps() == 1) return a.w.tap_value[channel];
  const auto run = [](int of, int& first, int& end) {
    first = of == 1 ? 1 : 0;
    end = of == 2 ? 2 : 3;
  };
  int row, row_end, col, col_end;
  run(kind / 3, row, row_end);
  run(kind % 3, col, col_end);
  float sum = 0;
  for (int r = row; r < row_end; ++r) {
    for (int c = col; c < col_end; ++c) sum += __ldg(a.w.tap_value + (r * 3 + c) * a.g.inputs + channel);
  }
  return sum;
}

struct ColumnConstants {
  float mean, factor, bias;
};

__device__ ColumnConstants constants_of(const InputGradientArguments& a, int channel) {
  ColumnConstants result{};
  if (channel >= a.g.inputs) return result;
  if (a.sums.work != nullptr) {
    result.mean = a.sums.norm.mean[channel];
    result.factor = a.sums.norm.factor[channel];
    result.bias = a.sums.norm.bias[channel];
  }
  return result;
}

// Two neighbouring channels, of which the second may be none.
__device__ float2 load_pair(const float* from, int channel, int channels) {
  if (channels % 2 == 0) return *reinterpret_cast<const float2*>(from + channel);
  return make_float2(from[channel], channel + 1 < channels ? from[channel + 1] : 0.0f);
}

// Which of two neighbours ReLU let pass, a bit each.
__device__ unsigned passing(const NormGradientSums& s, long long at, bool pair, const float2& y,
                            const ColumnConstants* of) {
  if (!s.relu) return 3;
  if (s.positive != nullptr) {
    const unsigned first = s.positive[at / 8] >> (at % 8) & 1u;
    const long long next = at + 1;
    return first | (pair ? s.positive[next / 8] >> (next % 8) & 1u : 0u) << 1;
  }
  return (mapped(y.x, of[0].mean, of[0].factor, of[0].bias) > 0 ? 1u : 0u) |
         (mapped(y.y, of[1].mean, of[1].factor, of[1].bias) > 0 ? 2u : 0u);
}

template <int kMTiles, int kNTiles, int kUnit>
__global__ void __launch_bounds__(kGatherThreads, 2)
    input_gradient_kernel(InputGradientArguments a, Source source, HaloShape halo_shape) {
  constexpr int kRows = 4 * 16 * kMTiles, kColumns = 8 * kNTiles, kWarps = kGatherThreads / kWarp;
  __shared__ __align__(16) std::uint8_t stages[kStages * kRows * kRowBytes];
  __shared__ ColumnConstants constants[kColumns + 1];  // pairs are read
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int first_pixel = static_cast<int>(blockIdx.x) * kRows,
            first_channel = static_cast<int>(blockIdx.y) * kColumns;
  if (thread < kColumns) constants[thread] = constants_of(a, first_channel + thread);
  const bool by_kind = has_kinds(a.g);
  __shared__ float of_kind[kKinds][kColumns];
  if (by_kind) {
    for (int i = thread; i < kKinds * kColumns; i += kGatherThreads)
      of_kind[i / kColumns][i % kColumns] = kind_values(a, i / kColumns, first_channel + i % kColumns);
  }

  float product[kMTiles][kNTiles][4]{};
  // Codes are centred, so that sums are about as large as the result and not small differences of large numbers.
  const unsigned bias = (static_cast<unsigned>(a.dy.bits.top()) + 1) / 2, minus = minus_bias(bias);
  const auto* weights = reinterpret_cast<const uint4*>(a.w.backward) + (blockIdx.y * kNTiles) * kWarp + lane;
  // 32 columns of the left matrix: row_at(m) is this lane's row of tile m.
  const auto multiply = [&](int step, const auto& row_at) {
    unsigned rows[kMTiles][4];
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) load_matrices(row_at(m), rows[m]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned e[kMTiles][4];
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        e[m][0] = halves_of_low_bytes(rows[m][half * 2], minus);
        e[m][1] = halves_of_low_bytes(rows[m][half * 2 + 1], minus);
        e[m][2] = halves_of_high_bytes(rows[m][half * 2], minus);
        e[m][3] = halves_of_high_bytes(rows[m][half * 2 + 1], minus);
      }
      const uint4* at = weights + static_cast<long long>((step * 2 + half) * source.packed_tiles) * kWarp;
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) {
        const uint4 b = __ldg(at + n * kWarp);
#pragma unroll
        for (int m = 0; m < kMTiles; ++m) {
          multiply_halves(product[m][n], e[m][0], e[m][1], e[m][2], e[m][3], b.x, b.y);
          multiply_halves(product[m][n], e[m][0], e[m][1], e[m][2], e[m][3], b.z, b.w);
        }
      }
    }
  };
  if constexpr (kUnit == kHaloUnit) {
    __shared__ int offsets[kMostHaloColumns];
    const Halo<true> halo(source, halo_shape, first_pixel, bias, stages, offsets);
    int pixel[kMTiles];
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) pixel[m] = halo.pixel((warp * kMTiles + m) * 16 + lane % 16, source);
    for (int step = 0; step < halo.steps(); ++step)
      multiply(step, [&](int m) { return halo.columns(pixel[m], step, lane / 16); });
    __syncthreads();
  } else {
    Gather<kRows, kUnit, true> gather(source, first_pixel, bias);
    for_each_chunk<kRows>(gather, stages, divide_up(a.g.taps() * a.g.outputs, kChunk),
                          [&](const std::uint8_t* stage, int chunk) {
#pragma unroll
                            for (int k = 0; k < kChunk / 32; ++k)
                              multiply(chunk * (kChunk / 32) + k, [&](int m) {
                                return stage + ((warp * kMTiles + m) * 16 + lane % 16) * kRowBytes + k * 32 +
                                       lane / 16 * 16;
                              });
                          });
  }

  // dy = scale (code - bias) + centre
  const float scale = *a.dy.scale, centre = *a.dy.offset + static_cast<float>(bias) * scale;
  const float plane_scale = scale * *a.w.plane_scale;
  float sum[kNTiles][2]{}, with_input[kNTiles][2]{};
#pragma unroll
  for (int i = 0; i < 2 * kMTiles; ++i) {
    const int number = first_pixel + (warp * kMTiles + i / 2) * 16 + i % 2 * 8 + lane / 4;
    int image, row, col;
    source.results.split(number, image, row, col);
    const Pixel pixel(a, number, image, row, col);
    if (!pixel.there) continue;
    const int kind = by_kind ? pixel.rows.kind(a.g.kernel_rows) * 3 + pixel.cols.kind(a.g.kernel_cols) : 0;
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
      const int first = n * 8 + lane % 4 * 2, channel = first_channel + first;
      if (channel >= a.g.inputs) continue;
      const ColumnConstants* of = &constants[first];
      const bool pair = channel + 1 < a.g.inputs;
      float gradient[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float values = by_kind          ? of_kind[kind][first + j]
                             : j == 0 || pair ? tap_values(a, pixel, channel + j)
                                              : 0.0f;
        gradient[j] = product[i / 2][n][i % 2 * 2 + j] * plane_scale + centre * values;
      }
      if (pixel.other != nullptr) {
        const float2 other = load_pair(pixel.other, channel, a.g.inputs);
        gradient[0] += other.x;
        gradient[1] += other.y;
      }
      if (a.sums.work != nullptr) {
        const float2 y = load_pair(a.sums.y + pixel.at, channel, a.g.inputs);
        const unsigned passes = passing(a.sums, pixel.at + channel, pair, y, of);
        if ((passes & 1) == 0) gradient[0] = 0;
        if ((passes & 2) == 0 || !pair) gradient[1] = 0;
        sum[n][0] += gradient[0];
        sum[n][1] += gradient[1];
        with_input[n][0] += gradient[0] * (y.x - of[0].mean);
        with_input[n][1] += gradient[1] * (y.y - of[1].mean);
      }
      float* to = a.dx + pixel.at + channel;
      if (a.g.inputs % 2 == 0) {
        *reinterpret_cast<float2*>(to) = make_float2(gradient[0], gradient[1]);
      } else {
        to[0] = gradient[0];
        if (pair) to[1] = gradient[1];
      }
    }
  }

  if (a.sums.work == nullptr) return;
  auto(*shared_sums)[kColumns] = reinterpret_cast<double2(*)[kColumns]>(stages);
  static_assert(sizeof(double2) * kWarps * kColumns <= sizeof(stages));
#pragma unroll
  for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int step = 4; step < kWarp; step *= 2) {
        sum[n][j] += __shfl_xor_sync(0xffffffffu, sum[n][j], step);
        with_input[n][j] += __shfl_xor_sync(0xffffffffu, with_input[n][j], step);
      }
      if (lane < 4)
        shared_sums[warp][n * 8 + lane * 2 + j] =
            make_double2(static_cast<double>(sum[n][j]), static_cast<double>(with_input[n][j]));
    }
  }
  __syncthreads();
  const ChannelWork work(a.sums.work, a.g.inputs);
  if (thread < kColumns && first_channel + thread < a.g.inputs) {
    double2 all = shared_sums[0][thread];
    for (int i = 1; i < kWarps; ++i) {
      all.x += shared_sums[i][thread].x;
      all.y += shared_sums[i][thread].y;
    }
    add_gradient_sums(work, static_cast<int>(blockIdx.x) % kCopies, first_channel + thread, all.x, all.y);
  }
  if (is_last_block(work.blocks_done, gridDim.x * gridDim.y))
    finish_gradient_sums(a.sums, a.g.inputs, a.g.input_pixels());
}

template <int kMTiles, int kNTiles>
void launch(const InputGradientArguments& a, const Source& source, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(divide_up(a.g.input_pixels(), 64 * kMTiles)),
                  static_cast<unsigned>(divide_up(a.g.inputs, 8 * kNTiles)));
  HaloShape halo;
  auto kernel = unit_for(a.g.outputs) == 16  ? input_gradient_kernel<kMTiles, kNTiles, 16>
                : unit_for(a.g.outputs) == 8 ? input_gradient_kernel<kMTiles, kNTiles, 8>
                : unit_for(a.g.outputs) == 4 ? input_gradient_kernel<kMTiles, kNTiles, 4>
                                             : input_gradient_kernel<kMTiles, kNTiles, 1>;
  if (has_halo(source, 64 * kMTiles, a.g.height, a.g.width)) {
    halo = HaloShape(source, 64 * kMTiles, a.g.width);
    kernel = input_gradient_kernel<kMTiles, kNTiles, kHaloUnit>;
  }
  kernel<<<grid, kGatherThreads, 0, stream>>>(a, source, halo);
  check_launch("conv_input_gradient");
}

}  // namespace

void conv_input_gradient(const InputGradientArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  const ConvGeometry& g = a.g;
  const Source source{a.dy.code,
                      g.images,
                      g.rows,
                      g.cols,
                      g.outputs,
                      PixelDivisor(g.height, g.width),
                      g.kernel_rows,
                      g.kernel_cols,
                      g.stride_rows,
                      g.stride_cols,
                      g.pad_rows,
                      g.pad_cols,
                      round_up(g.inputs, forward_columns(g.inputs)) / 8};
  const ProductCut cut(g.input_pixels(), g.inputs);
  if (cut.col_tiles == 2)
    return cut.row_tiles == 2 ? launch<2, 2>(a, source, stream) : launch<1, 2>(a, source, stream);
  if (cut.col_tiles == 4)
    return cut.row_tiles == 2 ? launch<2, 4>(a, source, stream) : launch<1, 4>(a, source, stream);
  return cut.row_tiles == 2 ? launch<2, 8>(a, source, stream) : launch<1, 8>(a, source, stream);
}

}  // namespace lowtide::cuda
