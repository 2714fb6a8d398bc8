#pragma once

#include "lowtide/engine/cuda/device.cuh"

// What is made of statistics of channels, and the extremes of whole tensors.

namespace lowtide::cuda {

// Extremes of a block's threads. A NaN stays one.
struct BlockExtremes {
  float low, high;
};
__device__ inline BlockExtremes join_block(float low, float high) {
  __shared__ unsigned ends[2];
  if (threadIdx.x == 0) ends[0] = ends[1] = 0;
  __syncthreads();
  const unsigned low_key = __reduce_max_sync(0xffffffffu, reverse_order_key(low));
  const unsigned high_key = __reduce_max_sync(0xffffffffu, order_key(high));
  if (threadIdx.x % kWarp == 0) {
    atomicMax(&ends[0], low_key);
    atomicMax(&ends[1], high_key);
  }
  __syncthreads();
  const BlockExtremes result{from_reverse_order_key(ends[0]), from_order_key(ends[1])};
  __syncthreads();  // the next call writes over it
  return result;
}

// As Extremes::least() and range(): NaN where an end is not finite.
__device__ inline void store_range(float low, float high, float* min, float* range) {
  const float poison = __fadd_rn(__fmul_rn(low, 0.0f), __fmul_rn(high, 0.0f));
  *min = __fadd_rn(low, poison);
  *range = __fadd_rn(__fsub_rn(high, low), poison);
}

__device__ inline float mapped(float y, float mean, float factor, float bias) {
  return __fadd_rn(__fmul_rn(__fsub_rn(y, mean), factor), bias);
}

__device__ inline void move_running(float* running, double now, double rate) {
  *running = static_cast<float>((1 - rate) * static_cast<double>(*running) + rate * now);
}

// A normalisation's constants of one channel, and the ends of its result.
struct ChannelNorm {
  float mean, factor, bias, inverse_deviation;
  float low, high;  // NaN where a value is not finite: ReLU would hide minus infinity
};

// From the sums and extremes of a channel's `count` numbers. `moves_running`: true in one block alone.
__device__ inline ChannelNorm channel_norm(const NormStatistics& s, int c, int channels, double count,
                                           bool moves_running) {
  float mean = s.running_mean[c], variance = s.running_variance[c];
  ChannelWork::Total total{};
  if (s.work != nullptr) total = ChannelWork(s.work, channels).total(c);
  if (s.uses_batch) {
    const float poison = __fadd_rn(__fmul_rn(total.low, 0.0f), __fmul_rn(total.high, 0.0f));
    const double exact_mean = total.first / count,
                 exact_variance = total.second / count - exact_mean * exact_mean;
    mean = __fadd_rn(static_cast<float>(exact_mean), poison);
    variance = __fadd_rn(static_cast<float>(exact_variance > 0 ? exact_variance : 0.0), poison);
    if (moves_running) {
      const double unbias = count > 1 ? count / (count - 1) : 1.0;
      move_running(s.running_mean + c, static_cast<double>(mean), s.momentum);
      move_running(s.running_variance + c, unbias * static_cast<double>(variance), s.momentum);
    }
  }
  const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(variance, kEpsilon)));
  const float factor = __fmul_rn(inverse, s.weight[c]), bias = s.bias[c];
  const float a = mapped(total.low, mean, factor, bias), b = mapped(total.high, mean, factor, bias);
  const bool poisoned = !isfinite(a) || !isfinite(b);
  const float least = fminf(a, b), most = fmaxf(a, b);
  return {.mean = mean,
          .factor = factor,
          .bias = bias,
          .inverse_deviation = inverse,
          .low = poisoned ? NAN
                 : s.relu ? fmaxf(least, 0.0f)
                          : least,
          .high = poisoned ? NAN
                  : s.relu ? fmaxf(most, 0.0f)
                           : most};
}

__device__ inline void store_norm(const NormConstants& out, int c, const ChannelNorm& of) {
  out.mean[c] = of.mean;
  out.factor[c] = of.factor;
  out.bias[c] = of.bias;
  out.inverse_deviation[c] = of.inverse_deviation;
}

// Extremes of numbers; a NaN among them stays.
struct Extent {
  float low = INFINITY, high = -INFINITY;
  bool poisoned = false;

  __device__ void include(float x) {
    low = fminf(low, x);
    high = fmaxf(high, x);
    poisoned |= !isfinite(x);
  }
  __device__ void include(const ChannelNorm& of) {
    low = fminf(low, of.low);
    high = fmaxf(high, of.high);
    poisoned |= isnan(of.low);
  }
  // Of all threads of a block.
  __device__ BlockExtremes join() const { return join_block(poisoned ? NAN : low, poisoned ? NAN : high); }
};

// All constants of a normalisation, and its result's range; called by all threads of one block.
__device__ inline void finish_statistics(const NormStatistics& s, int channels, double count) {
  Extent extent;
#pragma unroll 1
  for (int c = static_cast<int>(threadIdx.x); c < channels; c += static_cast<int>(blockDim.x)) {
    const ChannelNorm norm = channel_norm(s, c, channels, count, true);
    store_norm(s.out, c, norm);
    extent.include(norm);
  }
  if (s.work == nullptr) return;
  const BlockExtremes all = extent.join();
  if (threadIdx.x == 0) store_range(all.low, all.high, s.out.min, s.out.range);
}

// Adds a block's share of a gradient's sums. What is not finite, or too large for the sum, poisons the channel.
__device__ inline void add_gradient_sums(const ChannelWork& work, int copy, int channel, double sum,
                                         double product) {
  if (OrderFreeSum::fits(sum, gridDim.x) && OrderFreeSum::fits(product, gridDim.x)) {
    work.add(copy, channel, sum, product);
  } else {
    work.widen(copy, channel, NAN, NAN);
  }
}

// What the way back needs of the sums Σ g and Σ g (y - mean) of one channel; as MapBackward::finish_sums on a CPU.
struct ChannelGradient {
  float weight, bias;  // gradients of the normalisation's parameters
  float mean, slope;
};
__device__ inline ChannelGradient channel_gradient(const NormGradientSums& s, int c, int channels,
                                                   double count) {
  const ChannelWork work(s.work, channels);
  const ChannelWork::Total total = work.total(c);
  bool poisoned = false;
  for (int copy = 0; copy < kCopies; ++copy)
    poisoned |= __ldcg(work.keys + (copy * ChannelWork::kKeys + 1) * channels + c) != 0;
  const double poison = poisoned ? static_cast<double>(NAN) : 0.0;
  const double sum = total.first + poison, product = total.second + poison;
  const double inverse = static_cast<double>(s.norm.inverse_deviation[c]);
  return {.weight = static_cast<float>(product * inverse),
          .bias = static_cast<float>(sum),
          .mean = s.uses_batch ? static_cast<float>(sum / count) : static_cast<float>(poison),
          .slope = s.uses_batch ? static_cast<float>(product * inverse * inverse / count)
                                : static_cast<float>(poison)};
}

__device__ inline void store_gradient(const NormGradientSums& s, int c, const ChannelGradient& of) {
  s.weight_gradient[c] = of.weight;
  s.bias_gradient[c] = of.bias;
  s.gradient_mean[c] = of.mean;
  s.slope[c] = of.slope;
}

__device__ inline void finish_gradient_sums(const NormGradientSums& s, int channels, double count) {
  for (int c = static_cast<int>(threadIdx.x); c < channels; c += static_cast<int>(blockDim.x))
    store_gradient(s, c, channel_gradient(s, c, channels, count));
}

// dx = factor (g - gradient mean - (y - mean) slope), with these constants of a channel.
struct NormErrorConstants {
  float mean, factor, gradient_mean, slope;
};
__device__ inline float norm_error(float g, float y, const NormErrorConstants& of) {
  return __fmul_rn(of.factor,
                   __fsub_rn(__fsub_rn(g, of.gradient_mean), __fmul_rn(__fsub_rn(y, of.mean), of.slope)));
}

// Extremes that blocks join: copies a sector apart, then a counter of blocks.
struct ExtremesWork {
  static constexpr int kExtremesCopies = 8, kPitch = 8;
  unsigned* keys;

  __device__ explicit ExtremesWork(void* work) : keys(static_cast<unsigned*>(work)) {}
  __device__ unsigned* blocks_done() const { return keys + kExtremesCopies * kPitch; }

  // By one thread of a block.
  __device__ void include(const BlockExtremes& block) const {
    unsigned* mine = keys + blockIdx.x % kExtremesCopies * kPitch;
    atomicMax(mine, reverse_order_key(block.low));
    atomicMax(mine + 1, order_key(block.high));
  }
  // After all blocks have; by all lanes of one warp. Many warps that read the same words would wait for each other.
  __device__ BlockExtremes all() const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, copy = lane % kExtremesCopies;
    const unsigned low_key = __ldcg(keys + copy * kPitch), high_key = __ldcg(keys + copy * kPitch + 1);
    return {from_reverse_order_key(__reduce_max_sync(0xffffffffu, low_key)),
            from_order_key(__reduce_max_sync(0xffffffffu, high_key))};
  }
  // All threads call it; the last block writes the range.
  __device__ void join(const Extent& extent, float* min, float* range) const {
    const BlockExtremes block = extent.join();
    if (threadIdx.x == 0) include(block);
    if (!is_last_block(blocks_done(), gridDim.x) || threadIdx.x >= kWarp) return;
    const BlockExtremes of_all = all();
    if (threadIdx.x == 0) store_range(of_all.low, of_all.high, min, range);
  }
};
static_assert((ExtremesWork::kExtremesCopies * ExtremesWork::kPitch + 1) * sizeof(unsigned) <=
              kExtremesBytes);

}  // namespace lowtide::cuda
