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

// Eight Philox blocks in step. Their words stand in the lower halves of 64-bit lanes, where products are read from and left
// whole; what stands in the upper halves counts for nothing.
struct Blocks {
  __m512i c0, c1, c2, c3;
};

struct RoundKeys {
  __m512i key0, key1;
};

LOWTIDE_AVX512 inline void next_round(Blocks& blocks, const RoundKeys& keys) {
  constexpr int kXor3 = 0x96;  // the truth table of a ^ b ^ c
  const __m512i multiplier0 = _mm512_set1_epi32(static_cast<int>(Philox::kMultiplier0));
  const __m512i multiplier1 = _mm512_set1_epi32(static_cast<int>(Philox::kMultiplier1));
  const __m512i product0 = _mm512_mul_epu32(blocks.c0, multiplier0);
  const __m512i product1 = _mm512_mul_epu32(blocks.c2, multiplier1);
  blocks.c0 = _mm512_ternarylogic_epi32(_mm512_srli_epi64(product1, 32), blocks.c1, keys.key0, kXor3);
  blocks.c2 = _mm512_ternarylogic_epi32(_mm512_srli_epi64(product0, 32), blocks.c3, keys.key1, kXor3);
  blocks.c1 = product1;
  blocks.c3 = product0;
}

// The words of sixteen blocks side by side.
LOWTIDE_AVX512 inline __m512i interleave(__m512i even, __m512i odd) {
  return _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
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
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i c1 = _mm512_set1_epi32(static_cast<int>(counter.c1));
  const __m512i c2 = _mm512_set1_epi32(static_cast<int>(counter.c2));
  const __m512i c3 = _mm512_set1_epi32(static_cast<int>(counter.c3));
  RoundKeys keys[Philox::kRounds];
  for (std::uint32_t round = 0; round < Philox::kRounds; ++round) {
    keys[round] = {_mm512_set1_epi32(static_cast<int>(counter.key0 + round * Philox::kWeyl0)),
                   _mm512_set1_epi32(static_cast<int>(counter.key1 + round * Philox::kWeyl1))};
  }
  for (std::int64_t done = 0; done < n; done += kNoiseBlock) {
    const __m512i c0 = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int>(counter_at(first + done))));
    Blocks even{c0, c1, c2, c3}, odd{_mm512_srli_epi64(c0, 32), c1, c2, c3};
#pragma GCC unroll 7  // else the keys are not kept in registers
    for (int round = 0; round < Philox::kRounds; ++round) {
      next_round(even, keys[round]);
      next_round(odd, keys[round]);
    }
    store_halves(noise + done, interleave(even.c0, odd.c0));
    store_halves(noise + done + 2 * kNoiseLanes, interleave(even.c1, odd.c1));
    store_halves(noise + done + 4 * kNoiseLanes, interleave(even.c2, odd.c2));
    store_halves(noise + done + 6 * kNoiseLanes, interleave(even.c3, odd.c3));
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
