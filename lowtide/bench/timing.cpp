#include "lowtide/bench/timing.h"

#include <torch/cuda.h>

#include <algorithm>
#include <chrono>

namespace lowtide {

double milliseconds_of(const torch::Device& device, const std::function<void()>& work) {
  if (device.is_cuda()) torch::cuda::synchronize();
  const auto before = std::chrono::steady_clock::now();
  work();
  if (device.is_cuda()) torch::cuda::synchronize();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count();
}

double fastest(const torch::Device& device, int repeat, const std::function<void()>& work) {
  work();
  double best = milliseconds_of(device, work);
  for (int i = 1; i < repeat; ++i) best = std::min(best, milliseconds_of(device, work));
  return best;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace lowtide
