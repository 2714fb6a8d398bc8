#pragma once

#include "lowtide/engine/cuda/device.cuh"

// What the kernels for weight gradients share: sums of codes in memory, which blocks add to, and the values that come of them.

namespace lowtide::cuda {

inline constexpr int kMostPixelsPerBlock =
    32'768;  // sums of products of codes fit 32 bits: 255² · 2^15 < 2^31

// Of the sums that are taken of whole images (image_weight_gradient.cu); 0 where there is no such kernel.
std::size_t image_weight_gradient_work_bytes(const ConvGeometry& weight);

// Weights of many channels, and their gradients (wide_weight_gradient.cu). No bytes of products where the convolution cannot be cut
// into tiles, or a block of this GPU has no room for one.
bool is_wide(const ConvGeometry& weight);
std::size_t wide_weight_gradient_work_bytes(const ConvGeometry& weight);
std::size_t wide_weight_gradient_product_bytes(const ConvGeometry& g);
void wide_weight_gradient(const WeightGradientArguments& a, cudaStream_t stream);

// How many pixels of the output a tap leads to from the input.
__device__ inline long long pixels_of_tap(const ConvGeometry& g, int tap) {
  const auto count = [](int tap, int pad, int stride, int size, int results) {
    const int from = pad - tap, first = from > 0 ? divide_up(from, stride) : 0, last = size - 1 + from;
    return last < 0 ? 0 : max(0, min(last / stride, results - 1) - first + 1);
  };
  return static_cast<long long>(g.images) *
         count(tap / g.kernel_cols, g.pad_rows, g.stride_rows, g.height, g.rows) *
         count(tap % g.kernel_cols, g.pad_cols, g.stride_cols, g.width, g.cols);
}

// Sixteen channels of 32 pixels: of channel 2 · (lane / 4) and the next, of the first 16 pixels and the rest. Which of the pixels a
// lane holds, and in which order, is the same for both operands.
struct Transposed {
  unsigned even[2], odd[2];

  __device__ explicit Transposed(const std::uint8_t* unit_of_lane) {
    unsigned pairs[4];
    load_matrices_transposed(unit_of_lane, pairs);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      even[i] = __byte_perm(pairs[2 * i], pairs[2 * i + 1], 0x6420);
      odd[i] = __byte_perm(pairs[2 * i], pairs[2 * i + 1], 0x7531);
    }
  }
  __device__ static unsigned sum_of(const unsigned (&bytes)[2], unsigned sum) {
    return __dp4a(bytes[0], 0x01010101u, __dp4a(bytes[1], 0x01010101u, sum));
  }
};

// How many words a tile of the gradient has: sums of products, of the input's codes, of the error's.
struct TileCounts {
  int products, inputs, errors;
  __host__ __device__ int all() const { return products + inputs + errors + 1; }  // and a counter of blocks
};

struct TileWords {
  long long *products, *inputs, *errors;
  unsigned* blocks_done;

  __device__ TileWords(void* work, int tile, const TileCounts& count)
      : products(static_cast<long long*>(work) + static_cast<long long>(tile) * count.all()),
        inputs(products + count.products),
        errors(inputs + count.inputs),
        blocks_done(reinterpret_cast<unsigned*>(errors + count.errors)) {}
};

__device__ inline void add_word(long long* to, int word) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(word));
}
template <int kThreads>
__device__ void add_words(long long* to, const int* from, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) add_word(to + i, from[i]);
}

// As GradientSums::values of the CPU's integer engine, whose roundings these are.
struct GradientValues {
  Affine error, input;

  __device__ explicit GradientValues(const WeightGradientArguments& a)
      : error(Affine::of(a.dy)), input(Affine::of(a.x)) {}

  // Whether sums of the error's codes matter: not where the input's codes have 0 at 0, as after a ReLU.
  __device__ bool needs_errors() const { return input.zero != 0 || input.residual != 0; }

  // Over n pixels: Σ qe qx, Σ qx, Σ qe.
  __device__ float value(long long n, long long products, long long inputs, long long errors) const {
    const double se = error.scale, sx = input.scale;
    const long long centred_inputs = inputs - n * input.zero;  // Σ (qx - zx)
    const long long centred = products - input.zero * errors - error.zero * centred_inputs;
    const double error_value =
        __dmul_rn(__dmul_rn(se, input.residual), static_cast<double>(errors - n * error.zero));
    double result = __dadd_rn(__dmul_rn(__dmul_rn(se, sx), static_cast<double>(centred)), error_value);
    result = __dadd_rn(result, __dmul_rn(__dmul_rn(sx, error.residual), static_cast<double>(centred_inputs)));
    result = __dadd_rn(result, __dmul_rn(__dmul_rn(static_cast<double>(n), error.residual), input.residual));
    return static_cast<float>(result);
  }
};

}  // namespace lowtide::cuda
