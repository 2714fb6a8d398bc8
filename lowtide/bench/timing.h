#pragma once

#include <chrono>

namespace lowtide {

inline constexpr int kWarmUpSteps = 3;

template <typename Work>
double milliseconds_of(const Work& work) {
  const auto before = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count();
}

}  // namespace lowtide
