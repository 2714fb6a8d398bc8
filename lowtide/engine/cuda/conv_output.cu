// A convolution of codes: bytes on tensor cores, sums of 32-bit integers, and in the same pass the statistics of channels
// that the normalisation after it needs.
#include "lowtide/engine/cuda/gather.cuh"
#include "lowtide/engine/cuda/launch.h"
#include "lowtide/engine/cuda/statistics.cuh"

namespace lowtide::cuda {
namespace {

// What turns the sums of one output channel into values, where all taps lie inside the image. With x = sx (qx - zx) + ex and
// w = sw (qw - zw) + ew, over the valid taps:
//   Σ x·w = sx sw Σ (qx - zx)(qw - zw) + sx ew Σ (qx - zx) + ex (sw Σ (qw - zw) + N ew).
// The roundings are those of the CPU's integer engine (engine/integer/output_epilogue.cpp).
struct ChannelConstants {
  int zero;         // zw
  int offset;       // - zx Σ (qw - zw)
  float factor;     // sx sw
  float window;     // sx ew
  float value;      // the last term
  float scale;      // sw
  double residual;  // ew
};

struct ClassConstants {
  int offset;
  float value;
};

__device__ ClassConstants of_class(const Affine& x, int zero, float scale, double residual, int codes,
                                   int terms) {
  const int sum = codes - terms * zero;
  return {-x.zero * sum,
          static_cast<float>(x.residual * (static_cast<double>(scale) * static_cast<double>(sum) +
                                           static_cast<double>(terms) * residual))};
}

// The taps of a window that lie inside the image: rows [row, row_end), columns [col, col_end).
struct Window {
  int row, row_end, col, col_end;
  bool whole;

  __device__ Window(const ConvGeometry& g, int first_row, int first_col)
      : row(max(0, -first_row)),
        row_end(min(g.kernel_rows, g.height - first_row)),
        col(max(0, -first_col)),
        col_end(min(g.kernel_cols, g.width - first_col)),
        whole(row == 0 && col == 0 && row_end == g.kernel_rows && col_end == g.kernel_cols) {}

  __device__ int taps() const { return max(0, row_end - row) * max(0, col_end - col); }
  // Σ of the codes of these taps.
  __device__ int codes(const WeightLayer& w, int channel) const {
    const int pitch = w.kernel_cols + 1;
    const auto at = [&](int r, int c) { return __ldg(w.tap_prefix + (r * pitch + c) * w.outputs + channel); };
    if (taps() == 0) return 0;
    return at(row_end, col_end) - at(row, col_end) - at(row_end, col) + at(row, col);
  }
};

__device__ ChannelConstants constants_of(const OutputArguments& a, const Affine& x, int channel) {
  if (channel >= a.g.outputs) return {};
  const Affine w = Affine::of(a.w.scale[channel], a.w.offset[channel], static_cast<int>(a.w.bits.top()));
  const int terms = a.g.taps() * a.g.inputs;
  const int codes =
      a.w.tap_prefix[((a.g.kernel_rows + 1) * (a.g.kernel_cols + 1) - 1) * a.g.outputs + channel];
  const ClassConstants whole = of_class(x, w.zero, w.scale, w.residual, codes, terms);
  return {w.zero,
          whole.offset,
          __fmul_rn(x.scale, w.scale),
          static_cast<float>(static_cast<double>(x.scale) * w.residual),
          whole.value,
          w.scale,
          w.residual};
}

// From Σ qx qw and Σ qx to the value.
__device__ float output_value(const OutputArguments& a, const Affine& x, const ChannelConstants& of,
                              const Window& window, int channel, int product, int window_sum) {
  const int terms = window.taps() * a.g.inputs;
  ClassConstants edge{of.offset, of.value};
  // After a ReLU 0 is code 0, and where a window ends does not matter.
  if (!window.whole && (x.zero != 0 || x.residual != 0))
    edge = of_class(x, of.zero, of.scale, of.residual, window.codes(a.w, channel), terms);
  // Σ (qx - zx)(qw - zw) = Σ qx qw - zw Σ qx - zx Σ (qw - zw)
  const int centred = product - of.zero * window_sum + edge.offset;
  const int input = window_sum - terms * x.zero;
  return __fadd_rn(__fmul_rn(static_cast<float>(centred), of.factor),
                   __fadd_rn(__fmul_rn(static_cast<float>(input), of.window), edge.value));
}

// Of one channel in one warp.
struct WarpMoments {
  double sum, squares;
  float low, high;
};

// Sums over the eight lanes that hold rows of a column, of values about a pivot, which keeps digits where they lie close
// together far from 0. Valid in the first four lanes; `count` values of the warp are there.
template <int kValues>
__device__ WarpMoments warp_moments(const float (&value)[kValues], const bool (&there)[kValues], int count) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float pivot = __shfl_sync(0xffffffffu, value[0], lane % 4);  // 0 where no value is there
  float sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const float distance = there[i] ? value[i] - pivot : 0.0f;
    sum += distance;
    squares += distance * distance;
    low = fminf(low, there[i] ? value[i] : INFINITY);
    high = fmaxf(high, there[i] ? value[i] : -INFINITY);
  }
#pragma unroll
  for (int step = 4; step < kWarp; step *= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, step);
    squares += __shfl_xor_sync(0xffffffffu, squares, step);
    low = fminf(low, __shfl_xor_sync(0xffffffffu, low, step));
    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, step));
  }
  const double p = pivot, s = sum, n = count;
  return {n * p + s, squares + 2 * p * s + n * p * p, low, high};
}

template <int kMTiles, int kNTiles, int kUnit>
__global__ void __launch_bounds__(kGatherThreads, 3)
    output_kernel(OutputArguments a, Source source, HaloShape halo_shape) {
  constexpr int kRows = 4 * 16 * kMTiles, kColumns = 8 * kNTiles, kWarps = kGatherThreads / kWarp;
  __shared__ __align__(16) std::uint8_t stages[kStages * kRows * kRowBytes];
  __shared__ ChannelConstants constants[kColumns];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int first_pixel = static_cast<int>(blockIdx.x) * kRows,
            first_channel = static_cast<int>(blockIdx.y) * kColumns;
  const Affine x = Affine::of(a.x);
  if (thread < kColumns) constants[thread] = constants_of(a, x, first_channel + thread);

  int product[kMTiles][kNTiles][4]{};
  unsigned window_sum[kMTiles][2]{};
  const auto* weights = reinterpret_cast<const uint2*>(a.w.forward) + (blockIdx.y * kNTiles) * kWarp + lane;
  // 32 columns of the left matrix: row_at(m) is this lane's row of tile m.
  const auto multiply = [&](int step, const auto& row_at) {
    uint2 b[kNTiles];
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) b[n] = __ldg(weights + (step * source.packed_tiles + n) * kWarp);
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      unsigned rows[4];
      load_matrices(row_at(m), rows);
      window_sum[m][0] = __dp4a(rows[2], 0x01010101u, __dp4a(rows[0], 0x01010101u, window_sum[m][0]));
      window_sum[m][1] = __dp4a(rows[3], 0x01010101u, __dp4a(rows[1], 0x01010101u, window_sum[m][1]));
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) multiply_bytes(product[m][n], rows, b[n].x, b[n].y);
    }
  };
  if constexpr (kUnit == kHaloUnit) {
    __shared__ int offsets[kMostHaloColumns];
    const Halo<false> halo(source, halo_shape, first_pixel, 0, stages, offsets);
    int pixel[kMTiles];
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) pixel[m] = halo.pixel((warp * kMTiles + m) * 16 + lane % 16, source);
#pragma unroll 3
    for (int step = 0; step < halo.steps(); ++step)
      multiply(step, [&](int m) { return halo.columns(pixel[m], step, lane / 16); });
    __syncthreads();
  } else {
    Gather<kRows, kUnit, false> gather(source, first_pixel);
    for_each_chunk<kRows>(gather, stages, divide_up(a.g.taps() * a.g.inputs, kChunk),
                          [&](const std::uint8_t* stage, int chunk) {
#pragma unroll
                            for (int k = 0; k < kChunk / 32; ++k)
                              multiply(chunk * (kChunk / 32) + k, [&](int m) {
                                return stage + ((warp * kMTiles + m) * 16 + lane % 16) * kRowBytes + k * 32 +
                                       lane / 16 * 16;
                              });
                          });
  }

  float value[kNTiles][2][2 * kMTiles];
  bool there[2 * kMTiles];
#pragma unroll
  for (int i = 0; i < 2 * kMTiles; ++i) {
    unsigned sum = window_sum[i / 2][i % 2];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const int pixel = first_pixel + (warp * kMTiles + i / 2) * 16 + i % 2 * 8 + lane / 4;
    there[i] = pixel < a.g.output_pixels();
    int image, row, col;
    source.results.split(pixel, image, row, col);
    const Window window(a.g, row * a.g.stride_rows - a.g.pad_rows, col * a.g.stride_cols - a.g.pad_cols);
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
      const int column = n * 8 + lane % 4 * 2, channel = first_channel + column;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        value[n][j][i] = 0;
        if (!there[i] || channel + j >= a.g.outputs) continue;
        value[n][j][i] = output_value(a, x, constants[column + j], window, channel + j,
                                      product[i / 2][n][i % 2 * 2 + j], static_cast<int>(sum));
      }
      if (!there[i]) continue;
      float* to = a.y + static_cast<long long>(pixel) * a.g.outputs + channel;
      if (channel + 1 < a.g.outputs && a.g.outputs % 2 == 0) {
        *reinterpret_cast<float2*>(to) = make_float2(value[n][0][i], value[n][1][i]);
      } else {
        if (channel < a.g.outputs) to[0] = value[n][0][i];
        if (channel + 1 < a.g.outputs) to[1] = value[n][1][i];
      }
    }
  }

  if (a.statistics.out.mean == nullptr) return;
  const unsigned blocks = gridDim.x * gridDim.y;
  if (a.statistics.work == nullptr) {
    if (blockIdx.x == 0 && blockIdx.y == 0) finish_statistics(a.statistics, a.g.outputs, a.g.output_pixels());
    return;
  }
  auto(*moments)[kColumns] = reinterpret_cast<WarpMoments(*)[kColumns]>(stages);
  static_assert(sizeof(WarpMoments) * kWarps * kColumns <= sizeof(stages));
  const int count = min(max(a.g.output_pixels() - first_pixel - warp * 16 * kMTiles, 0), 16 * kMTiles);
#pragma unroll
  for (int n = 0; n < kNTiles; ++n) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const WarpMoments of = warp_moments(value[n][j], there, count);
      if (lane < 4) moments[warp][n * 8 + lane * 2 + j] = of;
    }
  }
  __syncthreads();
  const ChannelWork work(a.statistics.work, a.g.outputs);
  if (thread < kColumns && first_channel + thread < a.g.outputs) {
    WarpMoments all = moments[0][thread];
    for (int i = 1; i < kWarps; ++i) {
      const WarpMoments& of = moments[i][thread];
      all.sum += of.sum;
      all.squares += of.squares;
      all.low = fminf(all.low, of.low);
      all.high = fmaxf(all.high, of.high);
    }
    const int copy = static_cast<int>(blockIdx.x) % kCopies;
    // Minima pass over a NaN, sums do not.
    const bool fits = OrderFreeSum::fits(all.sum, gridDim.x) && OrderFreeSum::fits(all.squares, gridDim.x);
    if (fits) work.add(copy, first_channel + thread, all.sum, all.squares);
    work.widen(copy, first_channel + thread, fits ? all.low : NAN, fits ? all.high : NAN);
  }
  if (is_last_block(work.blocks_done, blocks))
    finish_statistics(a.statistics, a.g.outputs, a.g.output_pixels());
}

template <int kMTiles, int kNTiles>
void launch(const OutputArguments& a, const Source& source, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(divide_up(a.g.output_pixels(), 64 * kMTiles)),
                  static_cast<unsigned>(divide_up(a.g.outputs, 8 * kNTiles)));
  HaloShape halo;
  auto kernel = unit_for(a.g.inputs) == 16  ? output_kernel<kMTiles, kNTiles, 16>
                : unit_for(a.g.inputs) == 8 ? output_kernel<kMTiles, kNTiles, 8>
                : unit_for(a.g.inputs) == 4 ? output_kernel<kMTiles, kNTiles, 4>
                                            : output_kernel<kMTiles, kNTiles, 1>;
  if (has_halo(source, 64 * kMTiles, a.g.rows, a.g.cols)) {
    halo = HaloShape(source, 64 * kMTiles, a.g.cols);
    kernel = output_kernel<kMTiles, kNTiles, kHaloUnit>;
  }
  kernel<<<grid, kGatherThreads, 0, stream>>>(a, source, halo);
  check_launch("conv_output");
}

}  // namespace

void conv_output(const OutputArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  const ConvGeometry& g = a.g;
  const Source source{a.x.code,
                      g.images,
                      g.height,
                      g.width,
                      g.inputs,
                      PixelDivisor(g.rows, g.cols),
                      g.kernel_rows,
                      g.kernel_cols,
                      g.stride_rows,
                      g.stride_cols,
                      g.pad_rows,
                      g.pad_cols,
                      round_up(g.outputs, forward_columns(g.outputs)) / 8};
  const ProductCut cut(g.output_pixels(), g.outputs);
  if (cut.col_tiles == 2)
    return cut.row_tiles == 2 ? launch<2, 2>(a, source, stream) : launch<1, 2>(a, source, stream);
  if (cut.col_tiles == 4)
    return cut.row_tiles == 2 ? launch<2, 4>(a, source, stream) : launch<1, 4>(a, source, stream);
  return cut.row_tiles == 2 ? launch<2, 8>(a, source, stream) : launch<1, 8>(a, source, stream);
}

}  // namespace lowtide::cuda
