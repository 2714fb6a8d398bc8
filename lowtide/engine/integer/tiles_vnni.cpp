#include <immintrin.h>

#include "lowtide/engine/integer/tiles_impl.h"
#include "lowtide/engine/integer/winograd_impl.h"

namespace lowtide::integer {
namespace {

struct Vnni {
  using Sum = __m512i;
  using Vector = __m512i;
  using Quad = __m512i;
  using Scaled = __m512;
  // Of 32 registers, up to four hold vectors, one the quad. Eight sums hide the instruction's latency; more
  // gain only where loads bind: 24 is what is left for all shapes of tiles.
  static constexpr int kSums = 24;

  static Sum zero() { return _mm512_setzero_si512(); }
  static Vector load(const std::uint8_t* p) { return _mm512_load_si512(p); }
  static Quad broadcast(const std::int8_t* p) {
    std::int32_t quad;
    __builtin_memcpy(&quad, p, sizeof quad);
    return _mm512_set1_epi32(quad);
  }
  static void add_dot(Sum& sum, Vector v, Quad x) { sum = _mm512_dpbusd_epi32(sum, v, x); }
  static Scaled nothing() { return _mm512_setzero_ps(); }
  static void add_scaled(Scaled& total, Sum sum, float scale) {
    total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(scale), total);
  }
  static void store(float* p, Scaled total) { _mm512_store_ps(p, total); }
  static void store(std::int32_t* p, Sum sum) { _mm512_store_si512(p, sum); }
  static void add_to(std::int32_t* p, Sum sum) {
    _mm512_store_si512(p, _mm512_add_epi32(_mm512_load_si512(p), sum));
  }
};

// Sixteen bytes as the low halves of sixteen pairs of 16-bit numbers: the pair's other product is with 0.
__m512i widened(const std::uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

struct VnniPairs {
  using Sum = __m512i;
  using Vector = __m512i;
  using Pair = __m512i;
  static constexpr int kSums = 24;

  static Sum zero() { return _mm512_setzero_si512(); }
  static Vector load(const std::int16_t* p) { return _mm512_load_si512(p); }
  static Pair broadcast(const std::int16_t* p) {
    std::int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  static void add_dot(Sum& sum, Vector v, Pair x) { sum = _mm512_dpwssd_epi32(sum, v, x); }
  static void load_codes(const std::uint8_t* first, const std::uint8_t* second, Shorts& to) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(second));
    const __m256i pairs = _mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b));
    store_vector(&to, _mm512_cvtepu8_epi16(pairs));
  }
  static void load_codes(const std::uint8_t* p, Shorts& to) {
    store_vector(&to, _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
  }
  static void store(std::int32_t* p, Sum sum) { _mm512_store_si512(p, sum); }
};

void channel_sums(const std::int8_t* input, std::int64_t quads, const PixelLayout& layout,
                  std::int64_t pixels, std::int32_t* sum) {
  const __m512i ones = _mm512_set1_epi8(1);
  for (std::int64_t pixel = 0; pixel < pixels; pixel += kLanes) {
    const std::int64_t left = pixels - pixel;
    const __mmask16 mask = left >= kLanes ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
    __m512i total = _mm512_setzero_si512();
    for (std::int64_t quad = 0; quad < quads; ++quad) {
      const __m512i x = _mm512_maskz_loadu_epi32(mask, input + quad * layout.quad_step + kQuad * pixel);
      total = _mm512_dpbusd_epi32(total, ones, x);
    }
    _mm512_mask_storeu_epi32(sum + pixel, mask, total);
  }
}

void depthwise_pixel(const DepthwisePixel& pixel, const DepthwiseWeights& w) {
  std::int64_t c = 0;
  for (; c + kLanes <= w.channels; c += kLanes) {
    __m512i sum = _mm512_loadu_si512(pixel.class_sum + c), window_sum = _mm512_setzero_si512();
    for (std::int64_t tap = 0; tap < pixel.count; ++tap) {
      const __m512i x = widened(pixel.source + pixel.taps[tap].source + c);
      sum = _mm512_dpwssd_epi32(sum, x, _mm512_loadu_si512(w.weight + pixel.taps[tap].weight + c));
      window_sum = _mm512_add_epi32(window_sum, x);
    }
    // Products and sums rounded one by one, as plain loops have them.
    const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(w.scale + c));
    const __m512 window_term =
        _mm512_mul_ps(_mm512_cvtepi32_ps(window_sum), _mm512_loadu_ps(w.window_scale + c));
    _mm512_storeu_ps(
        pixel.out + c,
        _mm512_add_ps(scaled, _mm512_add_ps(window_term, _mm512_loadu_ps(pixel.class_value + c))));
  }
  depthwise_channels(pixel, w, c, w.channels);
}

template <int kTaps>
void depthwise_row_taps(const DepthwiseRow& row, std::int64_t c) {
  __m512i sum[kTaps];
#pragma GCC unroll 4
  for (int tap = 0; tap < kTaps; ++tap) sum[tap] = _mm512_loadu_si512(row.sum + tap * row.channels + c);
  const std::uint8_t* error = row.error + c;
  const std::uint8_t* input = row.input + c;
  for (std::int64_t col = 0; col < row.cols; ++col, error += row.channels, input += row.step * row.channels) {
    const __m512i e = widened(error);
#pragma GCC unroll 4
    for (int tap = 0; tap < kTaps; ++tap) {
      sum[tap] = _mm512_dpwssd_epi32(sum[tap], e, widened(input + tap * row.channels));
    }
  }
#pragma GCC unroll 4
  for (int tap = 0; tap < kTaps; ++tap) _mm512_storeu_si512(row.sum + tap * row.channels + c, sum[tap]);
}

void depthwise_row(const DepthwiseRow& row) {
  std::int64_t c = 0;
  for (; c + kLanes <= row.channels; c += kLanes) {
    if (row.taps == 3) {
      depthwise_row_taps<3>(row, c);
      continue;
    }
    DepthwiseRow one = row;
    for (int tap = 0; tap < row.taps; ++tap) {
      one.input = row.input + tap * row.channels;
      one.sum = row.sum + tap * row.channels;
      depthwise_row_taps<1>(one, c);
    }
  }
  depthwise_row_channels(row, c, row.channels);
}

}  // namespace

extern const TileKernels kVnniTiles;
const TileKernels kVnniTiles{.set = InstructionSet::kVnni,
                             .dot_row = dot_row<Vnni>,
                             .scaled_row = scaled_row<Vnni>,
                             .gradient_tile = gradient_tile<Vnni>,
                             .most_streams = most_streams<Vnni>,
                             .channel_sums = channel_sums,
                             .depthwise_pixel = depthwise_pixel,
                             .depthwise_row = depthwise_row,
                             .winograd = kWinograd<VnniPairs>};

}  // namespace lowtide::integer
