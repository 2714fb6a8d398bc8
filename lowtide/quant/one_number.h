#pragma once

#include <ATen/ATen.h>

namespace lowtide {

// A tensor of one float on the CPU. at::full goes through the dispatcher several times: 8 µs, some eighty times a step.
inline at::Tensor one_number(float value) {
  at::Tensor tensor = at::empty({1}, at::TensorOptions(at::kFloat));
  *tensor.data_ptr<float>() = value;
  return tensor;
}

}  // namespace lowtide
