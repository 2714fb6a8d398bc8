// The gradient at the input of a convolution of images that stay, the gradient of the normalisation that made that input, and the
// codes of the error that comes of it, in one kernel. The weight's scale runs along the sum, so its values are multiplied, in
// limbs of a byte: sums of integers, exact.
#include "lowtide/engine/cuda/resident.cuh"
#include "lowtide/quant/noise.h"

namespace lowtide::cuda {
namespace {

constexpr int kTaps = 9;
constexpr int kKinds = 9;  // of pixels, by the taps that lie inside: first, middle, last row and column

template <int kChannels>
struct __align__(16) BackwardMemory {
  using Of = Resident<kChannels>;
  static constexpr int kStepBytes = kLimbs * kChannels * 32;  // of the limbs

  float mean[kChannels], factor[kChannels], bias[kChannels];  // of the normalisation before
  float gradient_mean[kChannels], slope[kChannels];
  int zero[kLimbs][kChannels];          // what the error's zero adds to a sum, limb by limb
  float tap_value[kTaps][kChannels];    // Σ of the weight's values over outputs
  float kind_value[kKinds][kChannels];  // the same over the taps that lead from a pixel into the image
  float2 sums[Of::kRowWarps][kChannels];
  unsigned short noise[Of::kWarps][16 * 16];
  BlockExtremes ends;

  // After it: limbs of the weight, the output of the convolution before, what is to be added, the image.
  static std::size_t bytes(const ResidentShape& s, bool adds) {
    return sizeof(BackwardMemory) + Of::kSteps * kStepBytes + (adds ? 2 : 1) * LaneFloats<kChannels>::kBytes +
           Of::image_bytes(s);
  }
};

// By the taps that lie inside, of three: 0 for the first row (or column), 2 for the last, 1 for all between.
__device__ int edge_kind(int at, int size) { return at == 0 ? 0 : at == size - 1 ? 2 : 1; }

// A tap leads the other way than in a window of the output: tap 0 to the next row, which the last one does not have.
template <int kChannels>
__device__ void fill_kinds(BackwardMemory<kChannels>& memory) {
  for (int i = static_cast<int>(threadIdx.x); i < kKinds * kChannels; i += Resident<kChannels>::kThreads) {
    const int kind = i / kChannels, channel = i % kChannels;
    const auto inside = [](int edge, int tap) {
      return !(edge == 0 && tap == 2) && !(edge == 2 && tap == 0);
    };
    float sum = 0;
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap)
      sum += inside(kind / 3, tap / 3) && inside(kind % 3, tap % 3) ? memory.tap_value[tap][channel] : 0.0f;
    memory.kind_value[kind][channel] = sum;
  }
}

// A limb's weights of a step for the warp's channels.
template <int kChannels>
__device__ uint2 limbs_at(const std::uint8_t* limbs, const ResidentLane<kChannels>& at, int step, int limb,
                          int n) {
  const int of_warp = (step * (kChannels / 16) + at.col_warp) * kLimbs + limb;
  return reinterpret_cast<const uint2*>(limbs)[(of_warp * 2 + n) * kWarp + at.lane];
}

// Σ (qe - ze) w, up to the scale of the limbs. Limbs come in parts, the next on its way while one is multiplied.
template <int kChannels>
struct LimbProduct {
  using Of = Resident<kChannels>;
  using Memory = BackwardMemory<kChannels>;
  static constexpr int kParts = kChannels == 16 ? 1 : 3, kPartSteps = Of::kSteps / kParts;

  static __device__ void load(const InputGradientArguments& a, std::uint8_t* limbs, int part) {
    constexpr int kBytes = kPartSteps * Memory::kStepBytes;
    load_bytes<Of::kThreads>(reinterpret_cast<const std::uint8_t*>(a.w.limbs) + part * kBytes,
                             limbs + part * kBytes, kBytes);
    commit_copies();
  }

  // Of all tiles; of half of them at a time where registers would not do.
  static __device__ __forceinline__ void multiply(const ResidentShape& s, const ResidentLane<kChannels>& at,
                                                  const std::uint8_t* image, const std::uint8_t* limbs,
                                                  const Memory& memory, LaneRows<Of::kRows>& g) {
    constexpr int kAtOnce = Of::kMTiles < 2 ? Of::kMTiles : 2;
    multiply_tiles<0, kAtOnce>(s, at, image, limbs, memory, g);
    if constexpr (Of::kMTiles > 2) multiply_tiles<2, 2>(s, at, image, limbs, memory, g);
  }

 private:
  template <int kFirst, int kTiles>
  static __device__ __forceinline__ void multiply_tiles(const ResidentShape& s,
                                                        const ResidentLane<kChannels>& at,
                                                        const std::uint8_t* image, const std::uint8_t* limbs,
                                                        const Memory& memory, LaneRows<Of::kRows>& g) {
    int product[kLimbs][kTiles][2][4]{};
    for_each_operand<kChannels, true, kFirst, kTiles>(
        s, at, image, [&](int step, const unsigned(&pixels)[kTiles][4]) {
          if (step > 0 && step % kPartSteps == 0) {
            if (step == kPartSteps) wait_for_copies<1>();
            if (step > kPartSteps) wait_for_copies<0>();
            __syncthreads();
          }
#pragma unroll
          for (int d = 0; d < kLimbs; ++d) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
              const uint2 weights = limbs_at(limbs, at, step, d, n);
#pragma unroll
              for (int m = 0; m < kTiles; ++m)
                multiply_signed(product[d][m][n], pixels[m], weights.x, weights.y);
            }
          }
        });
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int zero[kLimbs] = {memory.zero[0][at.channel + j], memory.zero[1][at.channel + j],
                                memory.zero[2][at.channel + j]};
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        const auto limb = [&](int d) {
          return static_cast<float>(product[d][i / 2][j / 2][i % 2 * 2 + j % 2] - zero[d]);
        };
        g[2 * kFirst + i][j] = (limb(0) * 256.0f + limb(1)) * 256.0f + limb(2);
      }
    }
  }
};

// Adds the block's share of the sums that the normalisation needs.
template <int kChannels>
__device__ void add_sums(const NormGradientSums& of, const ResidentLane<kChannels>& at, float (&lane)[4][2],
                         BackwardMemory<kChannels>& memory) {
  float joined[2];
  join_rows(lane, joined, [](int, float a, float b) { return a + b; });
  if (at.lane % 8 < 4) memory.sums[at.row_warp][joined_channel(at)] = make_float2(joined[0], joined[1]);
  __syncthreads();
  const int channel = static_cast<int>(threadIdx.x);
  if (channel >= kChannels) return;
  double sum = 0, product = 0;
#pragma unroll
  for (int i = 0; i < Resident<kChannels>::kRowWarps; ++i) {
    sum += static_cast<double>(memory.sums[i][channel].x);
    product += static_cast<double>(memory.sums[i][channel].y);
  }
  add_gradient_sums(ChannelWork(of.work, kChannels), static_cast<int>(blockIdx.x) % kCopies, channel, sum,
                    product);
}

// The random bits of a warp's tile: one Philox block serves eight elements that lie 16 apart (quant/noise.h), so lanes draw for
// each other, some of them for another warp's channels too. Two of the lane's four numbers of a row in a word.
template <int kChannels>
__device__ void draw_noise(const NoiseCounter& counter, const ResidentShape& s,
                           const ResidentLane<kChannels>& at, int m, unsigned short* shared,
                           uint2 (&bits)[Resident<kChannels>::kRows]) {
  constexpr int kGroups = kChannels / 16;  // of 16 channels, in a pixel
  const int first = (static_cast<int>(blockIdx.x) * s.height * s.width + at.tile(m) * 16) * kChannels;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int block = i * 2 + at.lane / kNoiseLanes, in_block = at.lane % kNoiseLanes;
    const auto position = static_cast<std::uint32_t>(first / kNoiseBlock + block) * kNoiseLanes +
                          static_cast<std::uint32_t>(in_block);
    const Philox::Block drawn =
        Philox::block(counter.key0, counter.key1, position, counter.c1, counter.c2, counter.c3);
#pragma unroll
    for (int half = 0; half < kNoiseHalves; ++half) {
      if (half % kGroups != at.col_warp) continue;
      const int pixel = block * (kNoiseHalves / kGroups) + half / kGroups;
      shared[pixel * 16 + in_block] = static_cast<unsigned short>(drawn.word[half / 2] >> (half % 2 * 16));
    }
  }
  __syncwarp();
#pragma unroll
  for (int row = 0; row < 2; ++row)
    bits[2 * m + row] =
        *reinterpret_cast<const uint2*>(shared + (row * 8 + at.lane / 4) * 16 + at.lane % 4 * 4);
}

// What a block does, one after the other; between each there is something that all of its threads, or all blocks, wait for.
template <int kChannels>
struct BackwardBlock {
  using Of = Resident<kChannels>;
  using Memory = BackwardMemory<kChannels>;
  using Product = LimbProduct<kChannels>;
  using Rows = LaneRows<Of::kRows>;

  const ResidentBackwardArguments& a;
  const InputGradientArguments& of;
  const NormGradientSums& sums;
  const ResidentShape& s;
  const bool adds;
  Memory& memory;
  std::uint8_t* const limbs;
  const LaneFloats<kChannels> from, other;  // the output of the convolution before; another reader's gradient
  std::uint8_t* const image;
  const ResidentLane<kChannels> at;
  const int thread;

  __device__ BackwardBlock(const ResidentBackwardArguments& arguments, const ResidentShape& shape,
                           std::uint8_t* raw)
      : a(arguments),
        of(arguments.gradient),
        sums(arguments.gradient.sums),
        s(shape),
        adds(of.other != nullptr),
        memory(*reinterpret_cast<Memory*>(raw)),
        limbs(raw + sizeof(Memory)),
        from(limbs + Of::kSteps * Memory::kStepBytes),
        other(limbs + Of::kSteps * Memory::kStepBytes + LaneFloats<kChannels>::kBytes),
        image(limbs + Of::kSteps * Memory::kStepBytes + (adds ? 2 : 1) * LaneFloats<kChannels>::kBytes),
        thread(static_cast<int>(threadIdx.x)) {}

  // Copies are on their way while constants are found. Beyond the image lies the code of 0.
  __device__ __forceinline__ Affine load() const {
    load_image<kChannels>(s, of.dy.code, image);
    load_bytes<Of::kThreads>(of.w.tap_value, memory.tap_value, sizeof memory.tap_value);
    Product::load(of, limbs, 0);
    const Affine error = Affine::of(of.dy);
    if (thread < kChannels) {
      memory.mean[thread] = sums.norm.mean[thread];
      memory.factor[thread] = sums.norm.factor[thread];
      memory.bias[thread] = sums.norm.bias[thread];
#pragma unroll
      for (int d = 0; d < kLimbs; ++d)
        memory.zero[d][thread] = error.zero * __ldg(of.w.limb_sums + d * kChannels + thread);
    }
    fill_border<kChannels>(s, static_cast<unsigned>(error.zero), image);
#pragma unroll
    for (int part = 1; part < Product::kParts - 1; ++part) Product::load(of, limbs, part);
    from.load(s, at, sums.y);
    if (adds) other.load(s, at, of.other);
    if (Product::kParts > 1) {
      Product::load(of, limbs, Product::kParts - 1);
      wait_for_copies<Product::kParts - 1>();
    } else {
      commit_copies();
      wait_for_copies<1>();
    }
    __syncthreads();
    return error;
  }

  // The gradient at the input, what ReLU stops taken out, and its sums.
  // dx = Σ e w: e = scale (qe - ze) + residual
  __device__ __forceinline__ void find_gradient(const Affine& error, Rows& g) const {
    fill_kinds(memory);
    Product::multiply(s, at, image, limbs, memory, g);
    wait_for_copies<0>();
    __syncthreads();
    const float scale = error.scale * *of.w.limb_scale, residual = static_cast<float>(error.residual);
    float lane_sums[4][2]{};
#pragma unroll
    for (int i = 0; i < Of::kRows; ++i) {
      if (at.tile(i / 2) >= s.tiles) continue;
      const int element = at.element(s, i), pixel = at.pixel(i), row = s.by_width.of(pixel);
      const int kind = edge_kind(row, s.height) * 3 + edge_kind(pixel - row * s.width, s.width);
      const float4 value = *reinterpret_cast<const float4*>(memory.kind_value[kind] + at.channel);
      const float4 y4 = from.row(i), other4 = adds ? other.row(i) : make_float4(0, 0, 0, 0);
      const float values[4] = {value.x, value.y, value.z, value.w}, y[4] = {y4.x, y4.y, y4.z, y4.w};
      const float added[4] = {other4.x, other4.y, other4.z, other4.w};
      unsigned passing = 0xfu;
      if (sums.relu && sums.positive != nullptr) passing = sums.positive[element / 8] >> (element % 8);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int c = at.channel + j;
        const bool passes =
            !sums.relu ||
            (sums.positive != nullptr ? (passing >> j & 1) != 0
                                      : mapped(y[j], memory.mean[c], memory.factor[c], memory.bias[c]) > 0);
        const float gradient = g[i][j] * scale + (residual * values[j] + added[j]);
        g[i][j] = passes ? gradient : 0.0f;
        lane_sums[j][0] += g[i][j];
        lane_sums[j][1] += g[i][j] * (y[j] - memory.mean[c]);
      }
      if (of.dx != nullptr)
        *reinterpret_cast<float4*>(of.dx + element) = make_float4(g[i][0], g[i][1], g[i][2], g[i][3]);
    }
    add_sums(sums, at, lane_sums, memory);
  }

  // From that gradient to the error, in its place. Gives the block's extremes.
  __device__ __forceinline__ BlockExtremes find_error(Rows& g) const {
    if (thread < kChannels) {
      const double count = static_cast<double>(s.images) * (s.height * s.width);
      const ChannelGradient channel = channel_gradient(sums, thread, kChannels, count);
      memory.gradient_mean[thread] = channel.mean;
      memory.slope[thread] = channel.slope;
      if (blockIdx.x == 0) store_gradient(sums, thread, channel);
    }
    __syncthreads();
    Extent extent;
#pragma unroll
    for (int i = 0; i < Of::kRows; ++i) {
      if (at.tile(i / 2) >= s.tiles) continue;
      const float4 y4 = from.row(i);
      const float y[4] = {y4.x, y4.y, y4.z, y4.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int c = at.channel + j;
        g[i][j] = norm_error(g[i][j], y[j],
                             {.mean = memory.mean[c],
                              .factor = memory.factor[c],
                              .gradient_mean = memory.gradient_mean[c],
                              .slope = memory.slope[c]});
        extent.include(g[i][j]);
      }
    }
    return extent.join();
  }

  __device__ __forceinline__ void draw(uint2 (&noise)[Of::kRows]) const {
    if (!a.error.noisy) return;
    const NoiseCounter counter = counter_at(a.error.counter, a.error.device_step);
#pragma unroll
    for (int m = 0; m < Of::kMTiles; ++m)
      draw_noise(counter, s, at, m, memory.noise[threadIdx.x / kWarp], noise);
  }

  // The error's codes, by the extremes of all blocks.
  __device__ __forceinline__ void encode(const ExtremesWork& work, const uint2 (&noise)[Of::kRows],
                                         const Rows& error) const {
    const Encoder encoder =
        encoder_of_all(work, a.error.bits, {a.error.min, a.error.range, a.error.scale}, memory.ends);
#pragma unroll
    for (int i = 0; i < Of::kRows; ++i) {
      if (at.tile(i / 2) >= s.tiles) continue;
      const unsigned bits[2] = {noise[i].x, noise[i].y};
      const auto rounded = [&](int j) {
        return encoder.rounded(error[i][j],
                               a.error.noisy ? noise_value(bits[j / 2] >> (j % 2 * 16) & 0xffffu) : 0.0f);
      };
      *reinterpret_cast<unsigned*>(a.error.code + at.element(s, i)) =
          Encoder::four_bytes(rounded(0), rounded(1), rounded(2), rounded(3));
    }
  }
};

template <int kChannels>
__global__ void __launch_bounds__(Resident<kChannels>::kThreads, 1)
    resident_backward_kernel(const __grid_constant__ ResidentBackwardArguments a,
                             const __grid_constant__ ResidentShape s) {
  extern __shared__ __align__(16) std::uint8_t raw[];
  const BackwardBlock<kChannels> block(a, s, raw);
  const Affine error = block.load();
  LaneRows<Resident<kChannels>::kRows> g;
  block.find_gradient(error, g);
  const GridBarrier all_summed{ChannelWork(a.gradient.sums.work, kChannels).blocks_done};
  all_summed.arrive();
  all_summed.wait();

  const ExtremesWork work(a.error.work);
  const BlockExtremes ends = block.find_error(g);
  if (threadIdx.x == 0) work.include(ends);
  const GridBarrier all_measured{work.blocks_done()};
  all_measured.arrive();
  uint2 noise[Resident<kChannels>::kRows]{};
  block.draw(noise);  // while blocks wait
  all_measured.wait();
  block.encode(work, noise, g);
}

template <int kChannels>
void launch(const ResidentBackwardArguments& a, cudaStream_t stream) {
  const ResidentShape shape(a.gradient.g);
  launch_resident<resident_backward_kernel<kChannels>>(
      "resident_backward", a.gradient.g.images, Resident<kChannels>::kThreads,
      BackwardMemory<kChannels>::bytes(shape, a.gradient.other != nullptr), true, stream, a, shape);
}

}  // namespace

void resident_backward(const ResidentBackwardArguments& a, void* opaque_stream) {
  auto* stream = static_cast<cudaStream_t>(opaque_stream);
  with_channels(a.gradient.g.inputs, [&](auto channels) { launch<channels>(a, stream); });
}

}  // namespace lowtide::cuda
