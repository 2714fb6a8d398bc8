#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "lowtide/base/kept_memory.h"
#include "lowtide/base/parallel.h"
#include "lowtide/base/simd.h"
#include "lowtide/quant/extremes.h"
#include "lowtide/quant/noise.h"
#include "lowtide/quant/noise_fill.h"
#include "lowtide/quant/quantizer_kernels.h"

namespace lowtide {
namespace {

// Work is cut into chunks of this many elements: 4096 floats are 16 KiB, half of a first-level cache, so the
// noise of a chunk is still there when it is used. A multiple of kNoiseBlock.
constexpr std::int64_t kChunk = 4096;
static_assert(kChunk % kNoiseBlock == 0);

LOWTIDE_SIMD void find_extremes(const float* x, std::int64_t n, Extremes& result) {
  constexpr int kLanes = 64;  // four AVX-512 registers each: enough independent chains to hide the latency
  std::array<float, kLanes> low, high, poison;
  low.fill(result.min);
  high.fill(result.max);
  poison.fill(0);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float value = x[i + lane];
      low[lane] = value < low[lane] ? value : low[lane];
      high[lane] = value > high[lane] ? value : high[lane];
      poison[lane] += value * 0.0f;
    }
  }
  for (int lane = 0; i + lane < n; ++lane) {
    const float value = x[i + lane];
    low[lane] = value < low[lane] ? value : low[lane];
    high[lane] = value > high[lane] ? value : high[lane];
    poison[lane] += value * 0.0f;
  }
  // In halves, which are vectors too: rows may be as short as a head of attention.
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) {
      low[lane] = low[lane + half] < low[lane] ? low[lane + half] : low[lane];
      high[lane] = high[lane + half] > high[lane] ? high[lane + half] : high[lane];
      poison[lane] += poison[lane + half];
    }
  }
  result.join({low[0], high[0], poison[0]});
}

void store_range(const Extremes& extremes, float* min, float* range) {
  *min = extremes.least();
  *range = extremes.range();
}

// Rounds half to even, for 0 <= v < 2^22: adding 1.5 * 2^23 leaves no bits behind the point, and the integer
// stands in the low bits of the sum.
inline std::int32_t round_small(float v) {
  constexpr float kMagic = 0x1.8p23f;
  return std::bit_cast<std::int32_t>(v + kMagic) - std::bit_cast<std::int32_t>(kMagic);
}

inline float clamp(float v, float top) {
  v = v < 0.0f ? 0.0f : v;
  return v > top ? top : v;
}

template <bool kNoisy>
LOWTIDE_SIMD void encode_bytes(const float* x, std::uint8_t* code, std::int64_t n, float min, float scale,
                               float top, const float* noise) {
  for (std::int64_t i = 0; i < n; ++i) {
    float v = (x[i] - min) / scale;
    if constexpr (kNoisy) v += noise[i];
    code[i] = static_cast<std::uint8_t>(round_small(clamp(v, top)));
  }
}

void encode_wide(const float* x, std::int32_t* code, std::int64_t n, float min, float scale, float top,
                 const float* noise) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float v = clamp((x[i] - min) / scale + (noise ? noise[i] : 0.0f), top);
    code[i] = std::isnan(v) ? 0 : static_cast<std::int32_t>(std::nearbyint(v));
  }
}

LOWTIDE_SIMD void decode_bytes(const std::uint8_t* code, float* value, std::int64_t n, float scale,
                               float offset) {
  for (std::int64_t i = 0; i < n; ++i) value[i] = static_cast<float>(code[i]) * scale + offset;
}

void decode_wide(const std::int32_t* code, float* value, std::int64_t n, float scale, float offset) {
  for (std::int64_t i = 0; i < n; ++i) value[i] = static_cast<float>(code[i]) * scale + offset;
}

// Calls part(row, begin, end) for the part of each row that lies in [begin, end) of the flat tensor.
template <typename Part>
void for_each_row_part(std::int64_t begin, std::int64_t end, std::int64_t length, const Part& part) {
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t row = i / length;
    const std::int64_t stop = std::min(end, (row + 1) * length);
    part(row, i, stop);
    i = stop;
  }
}

// Fewer chunks than this are not worth a second thread: 16 take some 10 µs, and to wake a thread takes as long.
constexpr std::int64_t kChunksPerThread = 16;

template <typename Chunk>
void for_each_chunk(std::int64_t n, const Chunk& chunk) {
  const std::int64_t chunks = (n + kChunk - 1) / kChunk;
  parallel_for(chunks, kChunksPerThread,
               [&](std::int64_t i) { chunk(i * kChunk, std::min(n, (i + 1) * kChunk)); });
}

void measure_range(const RangeArguments& a, void*) {
  if (a.rows > 1) {
    const std::int64_t rows_per_thread = std::max<std::int64_t>(1, kChunksPerThread * kChunk / a.length);
    at::parallel_for(0, a.rows, rows_per_thread, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        Extremes extremes = Extremes::of_none();
        find_extremes(a.x + row * a.length, a.length, extremes);
        store_range(extremes, a.min + row, a.range + row);
      }
    });
    return;
  }
  // Minimum and maximum do not depend on the order, so neither does the result on the number of threads.
  KeptVector<Extremes> partial(static_cast<std::size_t>((a.length + kChunk - 1) / kChunk),
                               Extremes::of_none());
  for_each_chunk(a.length, [&](std::int64_t begin, std::int64_t end) {
    find_extremes(a.x + begin, end - begin, partial[static_cast<std::size_t>(begin / kChunk)]);
  });
  Extremes extremes = Extremes::of_none();
  for (const Extremes& part : partial) extremes.join(part);
  store_range(extremes, a.min, a.range);
}

void encode(const EncodeArguments& a, void*) {
  const float top = static_cast<float>((1 << a.bits.bits) - 1);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    a.scale[row] = scale_of(a.range[row], top);
  }
  for_each_chunk(a.rows * a.length, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) std::array<float, kChunk> drawn;
    const float* noise = a.noise ? a.noise + begin : nullptr;
    if (a.counter) {
      fill_noise(*a.counter, begin, end - begin, drawn.data());
      noise = drawn.data();
    }
    for_each_row_part(begin, end, a.length, [&](std::int64_t row, std::int64_t i, std::int64_t stop) {
      const float* part_noise = noise ? noise + (i - begin) : nullptr;
      if (!fits_bytes(a.bits)) {
        encode_wide(a.x + i, static_cast<std::int32_t*>(a.code) + i, stop - i, a.min[row], a.scale[row], top,
                    part_noise);
      } else if (part_noise) {
        encode_bytes<true>(a.x + i, static_cast<std::uint8_t*>(a.code) + i, stop - i, a.min[row],
                           a.scale[row], top, part_noise);
      } else {
        encode_bytes<false>(a.x + i, static_cast<std::uint8_t*>(a.code) + i, stop - i, a.min[row],
                            a.scale[row], top, nullptr);
      }
    });
  });
}

void decode(const DecodeArguments& a, void*) {
  for_each_chunk(a.rows * a.length, [&](std::int64_t begin, std::int64_t end) {
    for_each_row_part(begin, end, a.length, [&](std::int64_t row, std::int64_t i, std::int64_t stop) {
      if (!fits_bytes(a.bits)) {
        decode_wide(static_cast<const std::int32_t*>(a.code) + i, a.value + i, stop - i, a.scale[row],
                    a.offset[row]);
      } else {
        decode_bytes(static_cast<const std::uint8_t*>(a.code) + i, a.value + i, stop - i, a.scale[row],
                     a.offset[row]);
      }
    });
  });
}

void track(const TrackedRange* ranges, int count, void*) {
  for (int i = 0; i < count; ++i) ranges[i].move();
}

}  // namespace

const QuantizerKernels kCpuQuantizer{measure_range, encode, decode, track};

void encode_chunk(const ChunkArguments& a) {
  alignas(64) std::array<float, kChunk + kNoiseBlock> drawn;
  for (std::int64_t done = 0; done < a.n; done += kChunk) {
    const std::int64_t n = std::min(kChunk, a.n - done);
    if (!a.counter) {
      encode_bytes<false>(a.x + done, a.code + done, n, a.min, a.scale, a.top, nullptr);
      continue;
    }
    const std::int64_t into_block = (a.first + done) % kNoiseBlock;
    fill_noise(*a.counter, a.first + done - into_block, into_block + n, drawn.data());
    encode_bytes<true>(a.x + done, a.code + done, n, a.min, a.scale, a.top, drawn.data() + into_block);
  }
}

}  // namespace lowtide
