#pragma once

#include <functional>
#include <vector>

#include "lowtide/base/torch.h"

namespace lowtide {

// Wall-clock time of work, of what it launches on the device too.
double milliseconds_of(const torch::Device& device, const std::function<void()>& work);

// The shortest of so many times, after one that does not count.
double fastest(const torch::Device& device, int repeat, const std::function<void()>& work);

double median(std::vector<double> values);

}  // namespace lowtide
