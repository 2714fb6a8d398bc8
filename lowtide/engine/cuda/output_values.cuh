#pragma once

#include "lowtide/engine/cuda/product.cuh"

// From a convolution's sums of products of codes to its values, and their statistics.

namespace lowtide::cuda {

// The taps of a window that lie inside the image: rows [row, row_end), columns [col, col_end).
struct Window {
  int row, row_end, col, col_end;

  __device__ Window(const ConvGeometry& g, int first_row, int first_col)
      : row(max(0, -first_row)),
        row_end(min(g.kernel_rows, g.height - first_row)),
        col(max(0, -first_col)),
        col_end(min(g.kernel_cols, g.width - first_col)) {}

  __device__ int taps() const { return max(0, row_end - row) * max(0, col_end - col); }
  // Σ of the codes of these taps.
  __device__ int codes(const WeightLayer& w, int channel) const {
    const int pitch = w.kernel_cols + 1;
    const auto at = [&](int r, int c) { return __ldg(w.tap_prefix + (r * pitch + c) * w.outputs + channel); };
    if (taps() == 0) return 0;
    return at(row_end, col_end) - at(row, col_end) - at(row_end, col) + at(row, col);
  }
};

struct OutputKinds {
  EdgeKinds rows, cols;
  __host__ __device__ int count() const { return rows.count() * cols.count(); }
};
inline OutputKinds kinds_of(const ConvGeometry& g) {
  const auto taps = [](int kernel, int stride, int pad, int size) {
    return [=](int at) {
      const int first = at * stride - pad;
      const int from = first < 0 ? -first : 0, end = size - first < kernel ? size - first : kernel;
      return from * 64 + end;
    };
  };
  return {EdgeKinds(g.rows, taps(g.kernel_rows, g.stride_rows, g.pad_rows, g.height)),
          EdgeKinds(g.cols, taps(g.kernel_cols, g.stride_cols, g.pad_cols, g.width))};
}

// What turns sums into values, for a block's columns, in shared memory. With x = sx (qx - zx) + ex and w = sw (qw - zw) + ew, over
// the N taps and channels inside the image:
//   Σ x·w = sx sw Σ (qx - zx)(qw - zw) + sx ew Σ (qx - zx) + ex (sw Σ (qw - zw) + N ew).
// The roundings are those of the CPU's integer engine (engine/integer/output_epilogue.cpp).
template <int kColumns>
struct OutputConstants {
  float* factor;   // sx sw
  float* window;   // sx ew
  float* pivot;    // a value of the first tile
  int* zero;       // zw
  int* offset;     // - zx Σ (qw - zw), by kind of pixel
  float* value;    // the last term, by kind of pixel
  int* input;      // N zx, by kind of pixel
  int* has_edges;  // whether there is more than one kind

  __host__ __device__ static std::size_t bytes(int kinds) {
    return sizeof(int) * static_cast<std::size_t>(round_up((4 + 2 * kinds) * kColumns + kinds + 1, 4));
  }
  __device__ OutputConstants(void* memory, int kinds)
      : factor(static_cast<float*>(memory)),
        window(factor + kColumns),
        pivot(window + kColumns),
        zero(reinterpret_cast<int*>(pivot + kColumns)),
        offset(zero + kColumns),
        value(reinterpret_cast<float*>(offset + kinds * kColumns)),
        input(reinterpret_cast<int*>(value + kinds * kColumns)),
        has_edges(input + kinds) {}

  // By all threads. Where 0 is code 0, as after a ReLU, it does not matter where a window ends: one kind is enough.
  __device__ void fill(const OutputArguments& a, const OutputKinds& kinds, int first_channel) const {
    const bool code_0_is_0 = *a.x.offset == 0.0f;
    const int count = code_0_is_0 ? 1 : kinds.count();
    if (static_cast<int>(threadIdx.x) >= count * kColumns) return;
    if (threadIdx.x == 0) *has_edges = count > 1;
    const Affine x = code_0_is_0 ? Affine{*a.x.scale, 0, 0} : Affine::of(a.x);
    for (int i = static_cast<int>(threadIdx.x); i < count * kColumns; i += static_cast<int>(blockDim.x)) {
      const int kind = i / kColumns, column = i % kColumns, channel = first_channel + column;
      const int row = kinds.rows.example(kind / kinds.cols.count()),
                col = kinds.cols.example(kind % kinds.cols.count());
      const Window inside(a.g, row * a.g.stride_rows - a.g.pad_rows, col * a.g.stride_cols - a.g.pad_cols);
      const int n = inside.taps() * a.g.inputs;
      if (column == 0) input[kind] = n * x.zero;
      const bool there = channel < a.g.outputs;
      const Affine w =
          there ? Affine::of(a.w.scale[channel], a.w.offset[channel], static_cast<int>(a.w.bits.top()))
                : Affine{0, 0, 0};
      const int sum = there && !code_0_is_0 ? inside.codes(a.w, channel) - n * w.zero : 0;
      offset[i] = -x.zero * sum;
      value[i] = static_cast<float>(x.residual * (static_cast<double>(w.scale) * static_cast<double>(sum) +
                                                  static_cast<double>(n) * w.residual));
      if (kind != 0) continue;
      factor[column] = __fmul_rn(x.scale, w.scale);
      window[column] = static_cast<float>(static_cast<double>(x.scale) * w.residual);
      zero[column] = w.zero;
    }
  }
};

// Σ x·w of the formula above, from its first sum, Σ (qx - zx), and the last term.
__device__ inline float output_value(int sum, float factor, float input, float window, float last) {
  return __fadd_rn(__fmul_rn(static_cast<float>(sum), factor), __fadd_rn(__fmul_rn(input, window), last));
}

// Statistics of some columns over the rows that a lane holds, about a pivot, which keeps digits where values lie close together far
// from 0.
template <int kChannels>
struct LaneStatistics {
  float sum[kChannels], squares[kChannels], low[kChannels], high[kChannels];
  int rows = 0;

  __device__ LaneStatistics() {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      sum[i] = squares[i] = 0;
      low[i] = INFINITY;
      high[i] = -INFINITY;
    }
  }
  __device__ void add(int i, float value, float pivot) {
    const float distance = value - pivot;
    sum[i] += distance;
    squares[i] += distance * distance;
    low[i] = fminf(low[i], value);
    high[i] = fmaxf(high[i], value);
  }
};

// Of one channel in one warp.
struct WarpMoments {
  double sum, squares;
  float low, high;
};

// Joins the eight lanes that hold rows of the same columns; `rows` of all of them.
template <int kChannels>
__device__ WarpMoments join_lanes(const LaneStatistics<kChannels>& of, int i, int rows, double p) {
  float sum = of.sum[i], squares = of.squares[i], low = of.low[i], high = of.high[i];
#pragma unroll
  for (int step = 4; step < kWarp; step *= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, step);
    squares += __shfl_xor_sync(0xffffffffu, squares, step);
    low = fminf(low, __shfl_xor_sync(0xffffffffu, low, step));
    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, step));
  }
  const double s = sum, n = rows;
  return {n * p + s, squares + 2 * p * s + n * p * p, low, high};
}

// Adds a block's moments of a channel to those of all.
__device__ inline void add_moments(const ChannelWork& work, int channel, const WarpMoments& of) {
  const int copy = static_cast<int>(blockIdx.x) % kCopies;
  // Minima pass over a NaN, sums do not.
  const bool fits = OrderFreeSum::fits(of.sum, gridDim.x) && OrderFreeSum::fits(of.squares, gridDim.x);
  if (fits) work.add(copy, channel, of.sum, of.squares);
  work.widen(copy, channel, fits ? of.low : NAN, fits ? of.high : NAN);
}

}  // namespace lowtide::cuda
