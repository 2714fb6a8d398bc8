// What surrounds a convolution: normalisation, residual, ReLU and codes on the way forward; the error's range and codes on
// the way back. Each kernel is one pass over memory, eight neighbouring numbers a thread.
#include <stdexcept>

#include "lowtide/engine/cuda/launch.h"
#include "lowtide/engine/cuda/statistics.cuh"
#include "lowtide/quant/noise.h"
#include "lowtide/quant/vector.cuh"

namespace lowtide::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 528;  // four for a multiprocessor of an H200

// Constants by channel in shared memory: arrays one after the other, and the channel of an element.
__device__ void load_constants(float* shared, int channels, int array, const float* from) {
  for (int c = static_cast<int>(threadIdx.x); c < channels; c += kThreads)
    shared[array * channels + c] = from[c];
}

// Eight neighbours' constants of one array; channels come round again.
__device__ Vector constants_at(const float* of, int first, int channels) {
  Vector v;
  if (channels % kVector == 0) {
    const float4 a = *reinterpret_cast<const float4*>(of + first),
                 b = *reinterpret_cast<const float4*>(of + first + 4);
    v = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      v.value[i] = of[first];
      first = first + 1 == channels ? 0 : first + 1;
    }
  }
  return v;
}

// Of an element below 2^32: a division of 64 bits would take longer than all else.
__device__ int channel_of(long long element, int channels) {
  return static_cast<int>(static_cast<unsigned>(element) % static_cast<unsigned>(channels));
}

template <typename Work>
__device__ void for_each_vector(long long n, const Work& work) {
  const long long stride = static_cast<long long>(gridDim.x) * kThreads * kVector;
  for (long long at = (static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x) * kVector; at < n;
       at += stride)
    work(at);
}

__global__ void norm_encode_kernel(NormEncodeArguments a) {
  extern __shared__ float constants[];
  load_constants(constants, a.channels, 0, a.norm.mean);
  load_constants(constants, a.channels, 1, a.norm.factor);
  load_constants(constants, a.channels, 2, a.norm.bias);
  const Encoder encoder = Encoder::make(a.min, a.range, a.bits, a.scale);
  __syncthreads();
  const float *mean = constants, *factor = mean + a.channels, *bias = factor + a.channels;
  for_each_vector(a.n, [&](long long at) {
    const Vector y = Vector::load(a.y, at, a.n);
    const int c = channel_of(at, a.channels);
    const Vector m = constants_at(mean, c, a.channels), f = constants_at(factor, c, a.channels),
                 b = constants_at(bias, c, a.channels);
    unsigned code[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float z = mapped(y.value[i], m.value[i], f.value[i], b.value[i]);
      code[i] = encoder.code(a.relu && z < 0.0f ? 0.0f : z);
    }
    store_codes(code, a.code, at, a.n);
  });
}

__global__ void norm_add_kernel(NormAddArguments a) {
  extern __shared__ float constants[];
  load_constants(constants, a.channels, 0, a.norm.mean);
  load_constants(constants, a.channels, 1, a.norm.factor);
  load_constants(constants, a.channels, 2, a.norm.bias);
  __syncthreads();
  const float *mean = constants, *factor = mean + a.channels, *bias = factor + a.channels;
  Extent extent;
  for_each_vector(a.n, [&](long long at) {
    Vector z = Vector::load(a.y, at, a.n);
    Vector residual{};
    if (a.residual != nullptr) residual = Vector::load(a.residual, at, a.n);
    unsigned signs = 0;
    const int c = channel_of(at, a.channels);
    const Vector m = constants_at(mean, c, a.channels), f = constants_at(factor, c, a.channels),
                 b = constants_at(bias, c, a.channels);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      float v = mapped(z.value[i], m.value[i], f.value[i], b.value[i]);
      if (a.residual != nullptr) v = __fadd_rn(v, residual.value[i]);
      if (v > 0.0f) signs |= 1u << i;
      extent.poisoned |= at + i < a.n && !isfinite(v);  // ReLU hides minus infinity
      if (a.relu && v < 0.0f) v = 0.0f;
      z.value[i] = v;
      if (at + i < a.n) extent.include(v);
    }
    z.store(a.value, at, a.n);
    if (a.positive != nullptr) a.positive[at / kVector] = static_cast<std::uint8_t>(signs);
  });
  ExtremesWork(a.work).join(extent, a.min, a.range);
}

// Threads are channels, those left over further rows.
constexpr int kRowsPerThread = 32;
__host__ __device__ int channels_at_once(int channels) { return channels < kThreads ? channels : kThreads; }

__global__ void gradient_sums_kernel(GradientSumsArguments a) {
  const int at_once = channels_at_once(a.channels), rows_at_once = kThreads / at_once;
  const int thread = static_cast<int>(threadIdx.x), my_row = thread / at_once;
  const int channel = static_cast<int>(blockIdx.y) * at_once + thread % at_once;
  const long long rows = a.n / a.channels,
                  first = static_cast<long long>(blockIdx.x) * rows_at_once * kRowsPerThread;
  const NormGradientSums& s = a.sums;
  __shared__ double2 shared[kThreads];
  float sum = 0, product = 0;
  if (my_row < rows_at_once && channel < a.channels) {
    const float mean = s.norm.mean[channel], factor = s.norm.factor[channel], bias = s.norm.bias[channel];
    for (int i = 0; i < kRowsPerThread; ++i) {
      const long long row = first + i * rows_at_once + my_row;
      if (row >= rows) break;
      const long long at = row * a.channels + channel;
      float gradient = a.gradient[at];
      const float y = s.y[at];
      if (s.relu) {
        const bool passes = s.positive != nullptr ? (s.positive[at / 8] >> (at % 8) & 1) != 0
                                                  : mapped(y, mean, factor, bias) > 0;
        if (!passes) gradient = 0;
      }
      a.masked[at] = gradient;
      sum += gradient;
      product += gradient * (y - mean);
    }
  }
  shared[thread] = make_double2(static_cast<double>(sum), static_cast<double>(product));
  __syncthreads();
  const ChannelWork work(s.work, a.channels);
  if (my_row == 0 && channel < a.channels) {
    double2 all = shared[thread];
    for (int row = 1; row < rows_at_once; ++row) {
      all.x += shared[row * at_once + thread].x;
      all.y += shared[row * at_once + thread].y;
    }
    add_gradient_sums(work, static_cast<int>(blockIdx.x) % kCopies, channel, all.x, all.y);
  }
  if (is_last_block(work.blocks_done, gridDim.x * gridDim.y))
    finish_gradient_sums(s, a.channels, static_cast<double>(rows));
}

struct ErrorConstants {
  const float *mean, *factor, *gradient_mean, *slope;

  __device__ ErrorConstants(float* shared, const NormGradientArguments& a) {
    load_constants(shared, a.channels, 0, a.sums.norm.mean);
    load_constants(shared, a.channels, 1, a.sums.norm.factor);
    load_constants(shared, a.channels, 2, a.sums.gradient_mean);
    load_constants(shared, a.channels, 3, a.sums.slope);
    __syncthreads();
    mean = shared;
    factor = mean + a.channels;
    gradient_mean = factor + a.channels;
    slope = gradient_mean + a.channels;
  }
  __device__ Vector error(const NormGradientArguments& a, long long at) const {
    const Vector g = Vector::load(a.gradient, at, a.n), y = Vector::load(a.sums.y, at, a.n);
    const int c = channel_of(at, a.channels);
    const Vector m = constants_at(mean, c, a.channels), f = constants_at(factor, c, a.channels),
                 by = constants_at(gradient_mean, c, a.channels), s = constants_at(slope, c, a.channels);
    Vector result;
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      result.value[i] = norm_error(
          g.value[i], y.value[i],
          {.mean = m.value[i], .factor = f.value[i], .gradient_mean = by.value[i], .slope = s.value[i]});
    return result;
  }
};

__global__ void norm_gradient_range_kernel(NormGradientArguments a) {
  extern __shared__ float shared[];
  const ErrorConstants constants(shared, a);
  Extent extent;
  for_each_vector(a.n, [&](long long at) {
    const Vector error = constants.error(a, at);
    if (a.error != nullptr) error.store(a.error, at, a.n);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (at + i < a.n) extent.include(error.value[i]);
    }
  });
  ExtremesWork(a.work).join(extent, a.min, a.range);
}

// The noise of a warp's 256 neighbouring elements: one Philox block serves eight elements that lie 16 apart (quant/noise.h),
// so lanes draw for each other.
__device__ void draw_noise(const NoiseCounter& counter, long long first_of_warp, unsigned short* shared,
                           Vector& noise) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, block = lane / kNoiseLanes,
            in_block = lane % kNoiseLanes;
  const auto position = static_cast<std::uint32_t>(first_of_warp / kNoiseBlock + block) * kNoiseLanes +
                        static_cast<std::uint32_t>(in_block);
  const Philox::Block drawn =
      Philox::block(counter.key0, counter.key1, position, counter.c1, counter.c2, counter.c3);
  __syncwarp();
#pragma unroll
  for (int half = 0; half < kNoiseHalves; ++half) {
    shared[block * kNoiseBlock + half * kNoiseLanes + in_block] =
        static_cast<unsigned short>(drawn.word[half / 2] >> (half % 2 * 16));
  }
  __syncwarp();
  const uint4 mine = reinterpret_cast<const uint4*>(shared)[lane];
  const unsigned words[4] = {mine.x, mine.y, mine.z, mine.w};
#pragma unroll
  for (int i = 0; i < kVector; ++i) noise.value[i] = noise_value(words[i / 2] >> (i % 2 * 16) & 0xffffu);
}

__global__ void norm_gradient_encode_kernel(NormGradientArguments a) {
  extern __shared__ float shared[];
  __shared__ __align__(16) unsigned short noise_bits[kThreads / kWarp][kWarp * kVector];
  const ErrorConstants constants(shared, a);
  const Encoder encoder = Encoder::make(a.min, a.range, a.bits, a.scale);
  const NoiseCounter counter = counter_at(a.counter, a.device_step);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const long long stride = static_cast<long long>(gridDim.x) * kThreads * kVector;
  long long first = (static_cast<long long>(blockIdx.x) * kThreads + warp * kWarp) * kVector;
  for (; first < a.n; first += stride) {
    Vector noise{};
    if (a.noisy) draw_noise(counter, first, noise_bits[warp], noise);
    const long long at = first + lane * kVector;
    if (at >= a.n) continue;
    const Vector error = constants.error(a, at);
    unsigned code[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) code[i] = encoder.code(error.value[i], noise.value[i]);
    store_codes(code, a.code, at, a.n);
  }
}

dim3 blocks_for(std::int64_t n) {
  if (n > std::int64_t{1} << 32)  // channel_of()
    throw std::runtime_error("CUDA: there is no kernel for a normalisation of more than 2^32 numbers");
  const std::int64_t blocks = (n + kThreads * kVector - 1) / (kThreads * kVector);
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}
std::size_t constant_bytes(int arrays, int channels) {
  return sizeof(float) * static_cast<std::size_t>(arrays) * static_cast<std::size_t>(channels);
}
cudaStream_t on(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

std::size_t statistics_bytes(int channels) {
  return static_cast<std::size_t>(channels) * kCopies *
             (ChannelWork::kSums * sizeof(long long) + ChannelWork::kKeys * sizeof(unsigned)) +
         sizeof(unsigned);
}

void norm_encode(const NormEncodeArguments& a, void* stream) {
  launch_kernel<norm_encode_kernel>("norm_encode", blocks_for(a.n), kThreads, constant_bytes(3, a.channels),
                                    on(stream), a);
}

void norm_add(const NormAddArguments& a, void* stream) {
  launch_kernel<norm_add_kernel>("norm_add", blocks_for(a.n), kThreads, constant_bytes(3, a.channels),
                                 on(stream), a);
}

void gradient_sums(const GradientSumsArguments& a, void* stream) {
  const int at_once = channels_at_once(a.channels), rows_per_block = kThreads / at_once * kRowsPerThread;
  const dim3 grid(static_cast<unsigned>((a.n / a.channels + rows_per_block - 1) / rows_per_block),
                  static_cast<unsigned>(divide_up(a.channels, at_once)));
  gradient_sums_kernel<<<grid, kThreads, 0, on(stream)>>>(a);
  check_launch("gradient_sums");
}

void norm_gradient_range(const NormGradientArguments& a, void* stream) {
  launch_kernel<norm_gradient_range_kernel>("norm_gradient_range", blocks_for(a.n), kThreads,
                                            constant_bytes(4, a.channels), on(stream), a);
}

void norm_gradient_encode(const NormGradientArguments& a, void* stream) {
  launch_kernel<norm_gradient_encode_kernel>("norm_gradient_encode", blocks_for(a.n), kThreads,
                                             constant_bytes(4, a.channels), on(stream), a);
}

}  // namespace lowtide::cuda
