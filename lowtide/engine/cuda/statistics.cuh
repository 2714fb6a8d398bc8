#pragma once

#include "lowtide/engine/cuda/device.cuh"

// What the last block makes of statistics of channels.

namespace lowtide::cuda {

inline constexpr float kEpsilon = 1e-5f;  // kNormEpsilon

// Extremes of a block's threads; valid in thread 0. A NaN stays one.
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
  return {from_reverse_order_key(ends[0]), from_order_key(ends[1])};
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

// The constants of a normalisation, from what was taken of `count` numbers a channel; called by all threads of one block.
__device__ inline void finish_statistics(const NormStatistics& s, int channels, double count) {
  float low = INFINITY, high = -INFINITY;
  bool poisoned = false;
  for (int c = static_cast<int>(threadIdx.x); c < channels; c += static_cast<int>(blockDim.x)) {
    float mean = s.running_mean[c], variance = s.running_variance[c];
    ChannelWork::Total total{};
    if (s.work != nullptr) total = ChannelWork(s.work, channels).total(c);
    if (s.uses_batch) {
      const float poison = __fadd_rn(__fmul_rn(total.low, 0.0f), __fmul_rn(total.high, 0.0f));
      const double exact_mean = total.first / count,
                   exact_variance = total.second / count - exact_mean * exact_mean;
      mean = __fadd_rn(static_cast<float>(exact_mean), poison);
      variance = __fadd_rn(static_cast<float>(exact_variance > 0 ? exact_variance : 0.0), poison);
      const double unbias = count > 1 ? count / (count - 1) : 1.0;
      move_running(s.running_mean + c, static_cast<double>(mean), s.momentum);
      move_running(s.running_variance + c, unbias * static_cast<double>(variance), s.momentum);
    }
    const float inverse = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(variance, kEpsilon)));
    const float factor = __fmul_rn(inverse, s.weight[c]), bias = s.bias[c];
    s.out.mean[c] = mean;
    s.out.factor[c] = factor;
    s.out.bias[c] = bias;
    s.out.inverse_deviation[c] = inverse;
    if (s.work == nullptr) continue;
    const float a = mapped(total.low, mean, factor, bias), b = mapped(total.high, mean, factor, bias);
    poisoned |= !isfinite(a) || !isfinite(b);  // ReLU hides minus infinity
    const float least = fminf(a, b), most = fmaxf(a, b);
    low = fminf(low, s.relu ? fmaxf(least, 0.0f) : least);
    high = fmaxf(high, s.relu ? fmaxf(most, 0.0f) : most);
  }
  if (s.work == nullptr) return;
  const BlockExtremes all = join_block(poisoned ? NAN : low, poisoned ? NAN : high);
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

// What the way back needs of the sums Σ g and Σ g (y - mean); as MapBackward::finish_sums on a CPU.
__device__ inline void finish_gradient_sums(const NormGradientSums& s, int channels, double count) {
  const ChannelWork work(s.work, channels);
  for (int c = static_cast<int>(threadIdx.x); c < channels; c += static_cast<int>(blockDim.x)) {
    const ChannelWork::Total total = work.total(c);
    const bool poisoned =
        __ldcg(work.keys + channels + c) != 0 || __ldcg(work.keys + 3 * channels + c) != 0 ||
        __ldcg(work.keys + 5 * channels + c) != 0 || __ldcg(work.keys + 7 * channels + c) != 0;
    const double poison = poisoned ? static_cast<double>(NAN) : 0.0;
    const double sum = total.first + poison, product = total.second + poison;
    const double inverse = static_cast<double>(s.norm.inverse_deviation[c]);
    s.weight_gradient[c] = static_cast<float>(product * inverse);
    s.bias_gradient[c] = static_cast<float>(sum);
    s.gradient_mean[c] = s.uses_batch ? static_cast<float>(sum / count) : static_cast<float>(poison);
    s.slope[c] =
        s.uses_batch ? static_cast<float>(product * inverse * inverse / count) : static_cast<float>(poison);
  }
}

}  // namespace lowtide::cuda
