#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/gpu_memory.h"

// What kernels gave against what they should give.

namespace lowtide::cuda::bench {

inline bool failed = false;  // NOLINT: any of them

inline void report(const std::string& what, double off, double limit) {
  const bool is_right = off <= limit;  // a NaN is not
  failed |= !is_right;
  std::printf("%-58s %9.2e of at most %8.1e  %s\n", what.c_str(), off, limit,
              is_right ? "agrees" : "DIFFERS");
}

// The largest difference over the largest number, where that is not 0.
template <typename A, typename B>
double distance(const std::vector<A>& a, const std::vector<B>& b) {
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= most)) most = d;
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return most / (largest > 0 ? largest : 1);
}

template <typename T>
double differing(const Buffer<T>& a, const Buffer<T>& b) {
  const std::vector<T> x = a.host(), y = b.host();
  double count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) count += x[i] != y[i];
  return count;
}

}  // namespace lowtide::cuda::bench
