#include <immintrin.h>

#include "lowtide/engine/integer/tiles_impl.h"

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

void channel_sums(const std::int8_t* input, std::int64_t quads, std::int64_t plane, std::int64_t pixels,
                  std::int32_t* sum) {
  const __m512i ones = _mm512_set1_epi8(1);
  for (std::int64_t pixel = 0; pixel < pixels; pixel += kLanes) {
    const std::int64_t left = pixels - pixel;
    const __mmask16 mask = left >= kLanes ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
    __m512i total = _mm512_setzero_si512();
    for (std::int64_t quad = 0; quad < quads; ++quad) {
      const __m512i x = _mm512_maskz_loadu_epi32(mask, input + quad * plane + kQuad * pixel);
      total = _mm512_dpbusd_epi32(total, ones, x);
    }
    _mm512_mask_storeu_epi32(sum + pixel, mask, total);
  }
}

}  // namespace

extern const TileKernels kVnniTiles;
const TileKernels kVnniTiles{dot_row<Vnni>, scaled_row<Vnni>, gradient_tile<Vnni>, most_streams<Vnni>,
                             channel_sums};

}  // namespace lowtide::integer
