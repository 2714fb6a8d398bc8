#pragma once

#include <cstdint>
#include <vector>

// Drawn numbers.

namespace lowtide::cuda::bench {

std::vector<std::uint8_t> codes(std::size_t n, int top);

// Codes as extreme as can be, or drawn.
enum class Pattern { kDrawn, kZeros, kTops, kAlternating };
std::vector<std::uint8_t> codes_of(Pattern pattern, std::size_t n, int top, std::size_t period);

std::vector<float> normal(std::size_t n, float scale = 1, float shift = 0);

}  // namespace lowtide::cuda::bench
