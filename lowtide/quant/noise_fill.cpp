#include "lowtide/quant/noise_fill.h"

#include "lowtide/base/simd.h"
#include "lowtide/quant/noise.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lowtide {
namespace {

// The Philox counter of a block's lane 0.
std::uint32_t counter_at(std::int64_t index) {
  return static_cast<std::uint32_t>(index / kNoiseBlock) * kNoiseLanes;
}

// Sixteen Philox blocks in step, one a lane; the arrays become registers.
LOWTIDE_SIMD void fill_anywhere(const NoiseCounter& counter, std::int64_t first, std::int64_t n,
                                float* noise) {
  for (std::int64_t done = 0; done < n; done += kNoiseBlock) {
    const std::uint32_t base = counter_at(first + done);
    std::uint32_t c0[kNoiseLanes], c1[kNoiseLanes], c2[kNoiseLanes], c3[kNoiseLanes];
    for (int lane = 0; lane < kNoiseLanes; ++lane) {
      c0[lane] = base + static_cast<std::uint32_t>(lane);
      c1[lane] = counter.c1;
      c2[lane] = counter.c2;
      c3[lane] = counter.c3;
    }
    std::uint32_t key0 = counter.key0, key1 = counter.key1;
    for (int round = 0; round < Philox::kRounds; ++round) {
      for (int lane = 0; lane < kNoiseLanes; ++lane) {
        const std::uint64_t product0 = static_cast<std::uint64_t>(Philox::kMultiplier0) * c0[lane];
        const std::uint64_t product1 = static_cast<std::uint64_t>(Philox::kMultiplier1) * c2[lane];
        c0[lane] = static_cast<std::uint32_t>(product1 >> 32) ^ c1[lane] ^ key0;
        c1[lane] = static_cast<std::uint32_t>(product1);
        c2[lane] = static_cast<std::uint32_t>(product0 >> 32) ^ c3[lane] ^ key1;
        c3[lane] = static_cast<std::uint32_t>(product0);
      }
      key0 += Philox::kWeyl0;
      key1 += Philox::kWeyl1;
    }
    const std::uint32_t* words[] = {c0, c1, c2, c3};
    for (int half = 0; half < kNoiseHalves; ++half) {
      for (int lane = 0; lane < kNoiseLanes; ++lane) {
        noise[done + half * kNoiseLanes + lane] =
            noise_value(words[half / 2][lane] >> (half % 2 * 16) & 0xffffu);
      }
    }
  }
}

#if defined(__x86_64__)
#define LOWTIDE_AVX512 __attribute__((target("avx512f")))

// The upper halves of the sixteen 64-bit products of a word each: even lanes are multiplied in place, odd ones
// shifted down.
LOWTIDE_AVX512 inline __m512i high_product(__m512i words, __m512i multiplier) {
  const __m512i even = _mm512_mul_epu32(words, multiplier);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(words, 32), multiplier);
  return _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
}

LOWTIDE_AVX512 inline void store_halves(float* noise, __m512i word) {
  const __m512 scale = _mm512_set1_ps(0x1p-16f), shift = _mm512_set1_ps(0x1p-17f - 0.5f);
  const __m512 low = _mm512_cvtepi32_ps(_mm512_and_si512(word, _mm512_set1_epi32(0xffff)));
  const __m512 high = _mm512_cvtepi32_ps(_mm512_srli_epi32(word, 16));
  // Both products and both sums are exact, so fused or not is the same.
  _mm512_storeu_ps(noise, _mm512_fmadd_ps(low, scale, shift));
  _mm512_storeu_ps(noise + kNoiseLanes, _mm512_fmadd_ps(high, scale, shift));
}

// A compiler that sees the plain loop makes 64-bit lanes of its products, and three times the instructions.
LOWTIDE_AVX512 void fill_avx512(const NoiseCounter& counter, std::int64_t first, std::int64_t n,
                                float* noise) {
  const __m512i multiplier0 = _mm512_set1_epi32(static_cast<int>(Philox::kMultiplier0));
  const __m512i multiplier1 = _mm512_set1_epi32(static_cast<int>(Philox::kMultiplier1));
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  constexpr int kXor3 = 0x96;  // the truth table of a ^ b ^ c
  for (std::int64_t done = 0; done < n; done += kNoiseBlock) {
    __m512i c0 = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int>(counter_at(first + done))));
    __m512i c1 = _mm512_set1_epi32(static_cast<int>(counter.c1));
    __m512i c2 = _mm512_set1_epi32(static_cast<int>(counter.c2));
    __m512i c3 = _mm512_set1_epi32(static_cast<int>(counter.c3));
    std::uint32_t key0 = counter.key0, key1 = counter.key1;
    for (int round = 0; round < Philox::kRounds; ++round) {
      const __m512i high0 = high_product(c0, multiplier0), low0 = _mm512_mullo_epi32(c0, multiplier0);
      const __m512i high1 = high_product(c2, multiplier1), low1 = _mm512_mullo_epi32(c2, multiplier1);
      c0 = _mm512_ternarylogic_epi32(high1, c1, _mm512_set1_epi32(static_cast<int>(key0)), kXor3);
      c2 = _mm512_ternarylogic_epi32(high0, c3, _mm512_set1_epi32(static_cast<int>(key1)), kXor3);
      c1 = low1;
      c3 = low0;
      key0 += Philox::kWeyl0;
      key1 += Philox::kWeyl1;
    }
    store_halves(noise + done, c0);
    store_halves(noise + done + 2 * kNoiseLanes, c1);
    store_halves(noise + done + 4 * kNoiseLanes, c2);
    store_halves(noise + done + 6 * kNoiseLanes, c3);
  }
}
#endif

}  // namespace

void fill_noise(const NoiseCounter& counter, std::int64_t first, std::int64_t n, float* noise) {
#if defined(__x86_64__)
  static const bool has_avx512 = __builtin_cpu_supports("avx512f");
  if (has_avx512) return fill_avx512(counter, first, n, noise);
#endif
  fill_anywhere(counter, first, n, noise);
}

}  // namespace lowtide
