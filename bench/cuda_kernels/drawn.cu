#include <random>

#include "bench/cuda_kernels/drawn.h"

namespace lowtide::cuda::bench {

namespace {

std::mt19937 generator(1);  // NOLINT

// Drawn numbers take their time: they come round again.
constexpr std::size_t kDrawn = 1'000'003;

}  // namespace

std::vector<std::uint8_t> codes(std::size_t n, int top) {
  std::vector<std::uint8_t> v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] =
        i < kDrawn ? static_cast<std::uint8_t>(generator() % static_cast<unsigned>(top + 1)) : v[i - kDrawn];
  return v;
}

std::vector<std::uint8_t> codes_of(Pattern pattern, std::size_t n, int top, std::size_t period) {
  std::vector<std::uint8_t> v = codes(n, top);
  for (std::size_t i = 0; i < n && pattern != Pattern::kDrawn; ++i) {
    const bool high = pattern == Pattern::kTops || (pattern == Pattern::kAlternating && i / period % 2 == 0);
    v[i] = static_cast<std::uint8_t>(high ? top : 0);
  }
  return v;
}

std::vector<float> normal(std::size_t n, float scale, float shift) {
  std::normal_distribution<float> of(shift, scale);
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = i < kDrawn ? of(generator) : v[i - kDrawn];
  return v;
}

}  // namespace lowtide::cuda::bench
