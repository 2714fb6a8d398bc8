#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace lowtide::cuda::bench {

// Microseconds of one call, as one of many in a graph; `before`: once before those.
inline constexpr int kCalls = 50;
double time_of(const std::function<void(cudaStream_t, int)>& call,
               const std::function<void(cudaStream_t)>& before = nullptr);

}  // namespace lowtide::cuda::bench
