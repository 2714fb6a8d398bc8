#pragma once

#include <cstdint>

#include "lowtide/base/random.h"

// The quantiser's kernels on plain memory: no torch, so that nvcc and the host compiler read them in a
// moment. A tensor is `rows` rows of `length` elements with a range each; a whole-tensor range is one row.

namespace lowtide {

// Codes of this many bits or fewer are stored in a byte; wider ones in an int32.
inline constexpr int kByteBits = 8;
constexpr bool fits_bytes(int bits) { return bits >= 1 && bits <= kByteBits; }

struct NoiseCounter {
  std::uint32_t key0 = 0, key1 = 0;      // seed and purpose
  std::uint32_t c1 = 0, c2 = 0, c3 = 0;  // step (low, high), tensor
};

// A number of bits that a kernel reads: as it was when the kernel was launched; or, where a captured kernel is replayed at
// other bits, from device memory. Both are the same at launch.
struct DeviceBits {
  int bits = 0;
  const std::uint8_t* on_device = nullptr;

  LOWTIDE_HOST_DEVICE DeviceBits(int number = 0, const std::uint8_t* at = nullptr)  // NOLINT: a number is one
      : bits(number), on_device(at) {}
  LOWTIDE_HOST_DEVICE operator int() const { return bits; }  // NOLINT: and the other way round

  LOWTIDE_HOST_DEVICE float top() const {
    return static_cast<float>((1 << (on_device != nullptr ? *on_device : bits)) - 1);
  }
};

LOWTIDE_HOST_DEVICE inline float scale_of(float range, float top) {
  const float scale = range / top;
  return scale < 1e-8f ? 1e-8f : scale;  // a NaN stays one
}

struct RangeArguments {
  const float* x = nullptr;
  float* min = nullptr;    // out, a row each
  float* range = nullptr;  // out, a row each
  std::int64_t rows = 0, length = 0;
  void* scratch = nullptr;  // kRangeScratchBytes on the device, on CUDA
};
inline constexpr std::int64_t kRangeScratchBytes = 16384;

struct EncodeArguments {
  const float* x = nullptr;
  const float* min = nullptr;    // a row each
  const float* range = nullptr;  // a row each
  float* scale = nullptr;        // out, a row each
  void* code = nullptr;          // out: uint8 if it fits_bytes, else int32
  std::int64_t rows = 0, length = 0;
  DeviceBits bits;
  const NoiseCounter* counter = nullptr;      // noise is drawn from here,
  const std::int64_t* device_step = nullptr;  // with this step, where it lies on a device;
  const float* noise = nullptr;               // or given here, or there is none
};

struct DecodeArguments {
  const void* code = nullptr;
  const float* scale = nullptr;
  const float* offset = nullptr;
  float* value = nullptr;  // out
  std::int64_t rows = 0, length = 0;
  int bits = 0;
};

// A running minimum and range, and those of now.
struct TrackedRange {
  float* min = nullptr;
  float* range = nullptr;
  const float* min_now = nullptr;
  const float* range_now = nullptr;

  // Products and sums are rounded one by one, on every device.
  LOWTIDE_HOST_DEVICE void move() const {
    const auto blend = [](float* running, float now) {
#if defined(__CUDA_ARCH__)
      *running = __fadd_rn(__fmul_rn(*running, 0.9f), __fmul_rn(now, 0.1f));
#else
      *running = *running * 0.9f + now * 0.1f;
#endif
    };
    blend(min, *min_now);
    blend(range, *range_now);
  }
};

// What a device offers. `stream` is a cudaStream_t, or nothing on the CPU.
struct QuantizerKernels {
  void (*measure_range)(const RangeArguments& arguments, void* stream);
  void (*encode)(const EncodeArguments& arguments, void* stream);
  void (*decode)(const DecodeArguments& arguments, void* stream);
  void (*track)(const TrackedRange* ranges, int count, void* stream);
};

extern const QuantizerKernels kCpuQuantizer;

// A chunk of a tensor that has one range, as bytes, on the CPU.
struct ChunkArguments {
  const float* x = nullptr;
  std::uint8_t* code = nullptr;  // out
  std::int64_t first = 0;        // the index of x[0] in the tensor, which its noise goes by
  std::int64_t n = 0;
  float min = 0, scale = 0, top = 0;
  const NoiseCounter* counter = nullptr;  // noise is drawn from here, or there is none
};
void encode_chunk(const ChunkArguments& arguments);

extern const QuantizerKernels kCudaQuantizer;  // only in builds with CUDA

// measure_position_ranges of quantizer.h. Only in builds with CUDA.
struct PositionArguments {
  const float* x = nullptr;
  float* min = nullptr;    // out, a row each
  float* range = nullptr;  // out, a row each
  std::int64_t items = 0, positions = 0, length = 0;
};
void measure_positions_on_gpu(const PositionArguments& arguments, void* stream);

// The range of `count` Extremes. Only in builds with CUDA.
void join_extremes_on_gpu(const void* partial, int count, float* min, float* range, void* stream);

}  // namespace lowtide
