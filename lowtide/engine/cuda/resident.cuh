#pragma once

#include "lowtide/engine/cuda/divisor.cuh"
#include "lowtide/engine/cuda/output_values.cuh"
#include "lowtide/engine/cuda/statistics.cuh"
#include "lowtide/quant/vector.cuh"

// Images that stay. A 3 × 3 convolution of small images in steps of 1 is computed by a block an image, in whose registers the
// result stays while all blocks wait for each other to find out what the next pass needs: statistics, sums, ranges. So a
// convolution, its normalisation and the codes of that are one kernel, and floats are read and written once.
//
// A block has 16 warps. A warp computes 16 channels of kMTiles tiles of 16 pixels; of each pixel a lane has four neighbouring
// channels.

namespace lowtide::cuda {

// What the largest kernel takes: the backward pass of 16 channels with another reader's gradient.
inline constexpr std::size_t kMostSharedBytes = 176 * 1024;

// Of an image, in sixteen warps with kMTiles tiles of 16 pixels each.
inline int most_resident_pixels(int channels) { return 16 * (256 / channels) * (64 / channels); }

struct ResidentShape {
  int images = 0, height = 0, width = 0;
  int tiles = 0;                // of 16 pixels, in an image
  int pitch = 0;                // pixels of a row in shared memory, with its border
  int channel_block_bytes = 0;  // sixteen channels of an image there
  Divisor by_width;

  ResidentShape() = default;
  explicit ResidentShape(const ConvGeometry& g)
      : images(g.images),
        height(g.height),
        width(g.width),
        tiles(g.height * g.width / 16),
        pitch(g.width + 2),
        channel_block_bytes((g.height + 2) * (g.width + 2) * 16),
        by_width(g.width) {}
};

template <int kChannels>
struct Resident {
  static constexpr int kWarps = 16, kThreads = kWarps * kWarp;
  static constexpr int kColWarps = kChannels / 16, kRowWarps = kWarps / kColWarps;
  static constexpr int kMTiles = 64 / kChannels, kRows = 2 * kMTiles;  // rows: pixels of a lane
  static constexpr int kChannelBlocks = kChannels / 16;
  static constexpr int kSteps = (9 * kChannels + 31) / 32;  // of 32 along the sum
  static constexpr int kWeightBytes = kSteps * kChannels * 32;
  static std::size_t image_bytes(const ResidentShape& s) {
    return static_cast<std::size_t>(s.channel_block_bytes * kChannelBlocks);
  }
};

// Where a lane stands in its block.
template <int kChannels>
struct ResidentLane {
  using Of = Resident<kChannels>;
  int lane, row_warp, col_warp;
  int channel;  // the first of four

  __device__ ResidentLane()
      : lane(static_cast<int>(threadIdx.x) % kWarp),
        row_warp(static_cast<int>(threadIdx.x) / kWarp % Of::kRowWarps),
        col_warp(static_cast<int>(threadIdx.x) / kWarp / Of::kRowWarps),
        channel(col_warp * 16 + lane % 4 * 4) {}

  __device__ int tile(int m) const { return m * Of::kRowWarps + row_warp; }
  // Of row i of the lane: its pixel in the image.
  __device__ int pixel(int i) const { return tile(i / 2) * 16 + i % 2 * 8 + lane / 4; }
  // Where the lane's numbers of a row begin, in all images.
  __device__ int element(const ResidentShape& s, int i) const {
    return (static_cast<int>(blockIdx.x) * s.height * s.width + pixel(i)) * kChannels + channel;
  }
};

// A lane's numbers: of each row four neighbouring channels.
template <int kRows>
using LaneRows = float[kRows][4];

// ---- All blocks wait for each other --------------------------------------------------------------------------------

// A counter serves once. What any thread of a block has written before is known to all after wait().
struct GridBarrier {
  unsigned* arrived;

  // By all threads.
  __device__ void arrive() const {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(arrived, 1u);
    }
  }
  __device__ void wait() const {
    if (threadIdx.x == 0) {
      unsigned now = 0;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
      } while (now < gridDim.x);
    }
    __syncthreads();
  }
};

// Blocks that wait for each other are launched together, all on the GPU at once.
template <auto kKernel, typename... Arguments>
void launch_resident(const char* name, int blocks, int threads, std::size_t shared_bytes, bool waits,
                     cudaStream_t stream, const Arguments&... arguments) {
  cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = waits ? 1 : 0;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kKernel, arguments...);
  check_launch(name);
}

// Calls launch with the number of channels as a constant.
template <typename Launch>
void with_channels(int channels, const Launch& launch) {
  if (channels == 16) return launch(std::integral_constant<int, 16>());
  if (channels == 32) return launch(std::integral_constant<int, 32>());
  return launch(std::integral_constant<int, 64>());
}

// The encoder for the range that all blocks have joined, after they waited for each other; the first block writes it down. By all
// threads; `shared` is in shared memory.
struct RangeOut {
  float *min, *range, *scale;
};
__device__ __forceinline__ Encoder encoder_of_all(const ExtremesWork& work, const DeviceBits& bits,
                                                  const RangeOut& out, BlockExtremes& shared) {
  if (threadIdx.x < kWarp) {
    const BlockExtremes all = work.all();
    if (threadIdx.x == 0) shared = all;
  }
  __syncthreads();
  float min, range;
  store_range(shared.low, shared.high, &min, &range);
  const Encoder encoder = Encoder::make(min, range, bits.top());
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *out.min = min;
    *out.range = range;
    *out.scale = encoder.scale;
  }
  return encoder;
}

// ---- Pixels in shared memory ---------------------------------------------------------------------------------------

// Starts to copy an image. Sixteen channels of a pixel after the other, so that a tap is an offset.
template <int kChannels>
__device__ void load_image(const ResidentShape& s, const std::uint8_t* code, std::uint8_t* to) {
  using Of = Resident<kChannels>;
  const int pixels = s.height * s.width;
  const std::uint8_t* from = code + static_cast<long long>(blockIdx.x) * pixels * kChannels;
#pragma unroll 1
  for (int unit = static_cast<int>(threadIdx.x); unit < pixels * Of::kChannelBlocks; unit += Of::kThreads) {
    const int pixel = unit / Of::kChannelBlocks, row = s.by_width.of(pixel), col = pixel - row * s.width;
    copy_async<16>(
        to + unit % Of::kChannelBlocks * s.channel_block_bytes + ((row + 1) * s.pitch + col + 1) * 16,
        from + unit * 16);
  }
}

// Writes a byte all around it.
template <int kChannels>
__device__ void fill_border(const ResidentShape& s, unsigned byte, std::uint8_t* to) {
  using Of = Resident<kChannels>;
  const unsigned four = byte * 0x01010101u;
  const int border = 2 * s.pitch + 2 * s.height;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < border * Of::kChannelBlocks; i += Of::kThreads) {
    const int at = i / Of::kChannelBlocks, side = at - 2 * s.pitch;
    const int row = at < s.pitch ? 0 : at < 2 * s.pitch ? s.height + 1 : side / 2 + 1;
    const int col = at < s.pitch ? at : at < 2 * s.pitch ? at - s.pitch : side % 2 * (s.width + 1);
    *reinterpret_cast<uint4*>(to + i % Of::kChannelBlocks * s.channel_block_bytes +
                              (row * s.pitch + col) * 16) = make_uint4(four, four, four, four);
  }
}

// Floats that a lane will need of each of its rows, on their way into shared memory, where it alone reads them.
template <int kChannels>
struct LaneFloats {
  using Of = Resident<kChannels>;
  static constexpr int kBytes = Of::kRows * Of::kThreads * 16;
  float4* memory;

  __device__ explicit LaneFloats(std::uint8_t* at) : memory(reinterpret_cast<float4*>(at)) {}
  __device__ void load(const ResidentShape& s, const ResidentLane<kChannels>& at, const float* from) const {
#pragma unroll
    for (int i = 0; i < Of::kRows; ++i) {
      if (at.tile(i / 2) < s.tiles)
        copy_async<16>(memory + i * Of::kThreads + threadIdx.x, from + at.element(s, i));
    }
  }
  __device__ float4 row(int i) const { return memory[i * Of::kThreads + threadIdx.x]; }
};

// A multiple of 16 bytes.
template <int kThreads>
__device__ void load_bytes(const void* from, void* to, int bytes) {
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x) * 16; at < bytes; at += kThreads * 16)
    copy_async<16>(static_cast<std::uint8_t*>(to) + at, static_cast<const std::uint8_t*>(from) + at);
}

// Calls multiply(step, pixels) with the left operands of all products: of kTiles of a warp's tiles, the 32 along the
// sum of a step. kFlipped: the taps of an input gradient, which lead the other way.
template <int kChannels, bool kFlipped, int kFirst, int kTiles, typename Multiply>
__device__ __forceinline__ void for_each_operand(const ResidentShape& s, const ResidentLane<kChannels>& at,
                                                 const std::uint8_t* image, const Multiply& multiply) {
  using Of = Resident<kChannels>;
  const int second = at.lane / 16;  // of the two units of 16 in a step
  unsigned place[kTiles];
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    const int tile = at.tile(kFirst + m) < s.tiles ? at.tile(kFirst + m) : 0;
    const int pixel = tile * 16 + at.lane % 16, row = s.by_width.of(pixel);
    place[m] = shared_address(image) +
               static_cast<unsigned>((row * s.pitch + pixel - row * s.width) * 16 +
                                     (Of::kChannelBlocks > 1 ? second * s.channel_block_bytes : 0));
  }
  // Bytes from a pixel's first tap to a unit.
  const auto offset = [&](int unit) {
    const int tap = unit / Of::kChannelBlocks, forward = tap < 9 ? tap : 8,
              of = kFlipped ? 8 - forward : forward;
    return (of / 3 * s.pitch + of % 3) * 16 + unit % Of::kChannelBlocks * s.channel_block_bytes;
  };
  // Unrolled where a step is short; else the compiler would load ahead until it has no registers left.
  constexpr int kUnrolled = kFlipped ? 1 : Of::kSteps;
#pragma unroll kUnrolled
  for (int step = 0; step < Of::kSteps; ++step) {
    const int by = Of::kChannelBlocks > 1 || second == 0 ? offset(2 * step) : offset(2 * step + 1);
    unsigned pixels[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) load_matrices(place[m] + static_cast<unsigned>(by), pixels[m]);
    multiply(step, pixels);
  }
}

// The weights of a step for the warp's channels, from packed ones in shared memory.
template <int kChannels>
__device__ uint2 weights_at(const std::uint8_t* packed, const ResidentLane<kChannels>& at, int step, int n) {
  return reinterpret_cast<const uint2*>(
      packed)[(step * (kChannels / 8) + at.col_warp * 2 + n) * kWarp + at.lane];
}

// Joins what a lane has of its four channels with what the other lanes have, which hold other rows. Lanes share the work: in the
// end lane 8 j + 4 k + q of a warp has channel 4 q + j of the sixteen.
template <int kKinds, typename Join>
__device__ __forceinline__ void join_rows(float (&of)[4][kKinds], float (&joined)[kKinds], const Join& join) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool upper = (lane & 16) != 0, odd = (lane & 8) != 0;
#pragma unroll
  for (int kind = 0; kind < kKinds; ++kind) {
    float half[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float keep = upper ? of[j + 2][kind] : of[j][kind], give = upper ? of[j][kind] : of[j + 2][kind];
      half[j] = join(kind, keep, __shfl_xor_sync(0xffffffffu, give, 16));
    }
    const float keep = odd ? half[1] : half[0], give = odd ? half[0] : half[1];
    const float mine = join(kind, keep, __shfl_xor_sync(0xffffffffu, give, 8));
    joined[kind] = join(kind, mine, __shfl_xor_sync(0xffffffffu, mine, 4));
  }
}
// The channel of a block that a lane has then.
template <int kChannels>
__device__ int joined_channel(const ResidentLane<kChannels>& at) {
  return at.channel + at.lane / 8;
}

}  // namespace lowtide::cuda
