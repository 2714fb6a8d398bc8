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
  // Of 32 registers, up to four hold vectors, one the quad: 24 is what is left for all shapes of tiles.
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

// What makes floats of sixteen channels' sums.
struct DepthwiseConstants {
  __m512 scale, window_scale, value;

  DepthwiseConstants(const DepthwiseRun& run, const DepthwiseWeights& w, std::int64_t c)
      : scale(_mm512_loadu_ps(w.scale + c)),
        window_scale(_mm512_loadu_ps(w.window_scale + c)),
        value(_mm512_loadu_ps(run.class_value + c)) {}

  // Products and sums rounded one by one, as plain loops have them.
  __m512 output(__m512i sum, __m512i window_sum) const {
    return _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale),
                         _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(window_sum), window_scale), value));
  }
};

// Sixteen channels of pixels with any taps.
void depthwise_taps(const DepthwiseRun& run, const DepthwiseWeights& w, std::int64_t c) {
  const DepthwiseConstants constants(run, w, c);
  const __m512i start = _mm512_loadu_si512(run.class_sum + c);
  const std::uint8_t* source = run.source + c;
  float* out = run.out + c;
  for (std::int64_t pixel = 0; pixel < run.pixels; ++pixel, source += run.source_step, out += run.out_step) {
    __m512i sum = start, window_sum = _mm512_setzero_si512();
    for (std::int64_t tap = 0; tap < run.count; ++tap) {
      const __m512i x = widened(source + run.taps[tap].source);
      sum = _mm512_dpwssd_epi32(sum, x, _mm512_loadu_si512(w.weight + run.taps[tap].weight + c));
      window_sum = _mm512_add_epi32(window_sum, x);
    }
    _mm512_storeu_ps(out, constants.output(sum, window_sum));
  }
}

// Sixteen channels where the taps are kRows rows of three neighbours and pixels are neighbours too: a column of input is
// read once, for the three outputs that it is part of.
template <int kRows>
void depthwise_columns(const DepthwiseRun& run, const DepthwiseWeights& w, std::int64_t c) {
  const DepthwiseConstants constants(run, w, c);
  const __m512i start = _mm512_loadu_si512(run.class_sum + c);
  const std::uint8_t* row[kRows];
  __m512i weight[kRows][3];
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
    row[r] = run.source + run.taps[3 * r].source + c;
#pragma GCC unroll 3
    for (int k = 0; k < 3; ++k) weight[r][k] = _mm512_loadu_si512(w.weight + run.taps[3 * r + k].weight + c);
  }
  // The outputs that lack one column and two; sums of the last two columns.
  __m512i lacks_one = start, lacks_two = start, before = _mm512_setzero_si512(), last = before;
  float* out = run.out + c;
  for (std::int64_t column = 0; column < run.pixels + 2; ++column) {
    __m512i whole = lacks_one, column_sum = _mm512_setzero_si512();
    lacks_one = lacks_two;
    lacks_two = start;
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
      const __m512i x = widened(row[r] + column * run.source_step);
      whole = _mm512_dpwssd_epi32(whole, x, weight[r][2]);
      lacks_one = _mm512_dpwssd_epi32(lacks_one, x, weight[r][1]);
      lacks_two = _mm512_dpwssd_epi32(lacks_two, x, weight[r][0]);
      column_sum = _mm512_add_epi32(column_sum, x);
    }
    if (column >= 2) {
      const __m512i window_sum = _mm512_add_epi32(_mm512_add_epi32(before, last), column_sum);
      _mm512_storeu_ps(out + (column - 2) * run.out_step, constants.output(whole, window_sum));
    }
    before = last;
    last = column_sum;
  }
}

// Whether the taps are rows of three neighbours.
bool has_rows_of_three(const DepthwiseRun& run, std::int64_t channels) {
  if (run.count % 3 != 0) return false;
  for (std::int64_t tap = 0; tap < run.count; ++tap) {
    if (run.taps[tap].source - run.taps[tap - tap % 3].source != tap % 3 * channels) return false;
  }
  return true;
}

void depthwise_run(const DepthwiseRun& run, const DepthwiseWeights& w) {
  const bool slides = run.pixels > 1 && run.source_step == w.channels && has_rows_of_three(run, w.channels);
  const auto sixteen_channels = slides && run.count == 9   ? depthwise_columns<3>
                                : slides && run.count == 6 ? depthwise_columns<2>
                                                           : depthwise_taps;
  std::int64_t c = 0;
  for (; c + kLanes <= w.channels; c += kLanes) sixteen_channels(run, w, c);
  depthwise_channels(run, w, c, w.channels);
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
                             .depthwise_run = depthwise_run,
                             .depthwise_row = depthwise_row,
                             .winograd = kWinograd<VnniPairs>};

}  // namespace lowtide::integer
