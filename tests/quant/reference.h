#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "lowtide/base/torch.h"
#include "lowtide/quant/quantizer.h"

namespace lowtide {

// The quantiser in plain words, element after element in the order of the contiguous tensor. `noise` gives
// what is added, by that order; nothing where it is empty.
struct Reference {
  std::vector<std::int32_t> code;
  std::vector<float> scale, min;  // a group each
};

inline Reference reference_encode(const torch::Tensor& x, RangeGroup group, int bits,
                                  const std::function<float(std::int64_t)>& noise = {}) {
  const torch::Tensor flat = x.contiguous().flatten();
  const float* values = flat.data_ptr<float>();
  const std::int64_t rows = group == RangeGroup::kRow ? x.size(0) : 1;
  const std::int64_t length = flat.numel() / rows;
  const auto top = static_cast<float>((1 << bits) - 1);
  Reference result;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto [low, high] = std::minmax_element(values + row * length, values + (row + 1) * length);
    const float range = *high - *low;
    const float scale = std::max(range / top, 1e-8f);
    result.min.push_back(*low);
    result.scale.push_back(scale);
    for (std::int64_t i = row * length; i < (row + 1) * length; ++i) {
      const float v = (values[i] - *low) / scale + (noise ? noise(i) : 0.0f);
      result.code.push_back(static_cast<std::int32_t>(std::nearbyint(std::clamp(v, 0.0f, top))));
    }
  }
  return result;
}

inline std::vector<std::int32_t> codes_of(const Quantized& q) {
  const torch::Tensor code = q.code.to(torch::kInt).contiguous();
  return {code.data_ptr<std::int32_t>(), code.data_ptr<std::int32_t>() + code.numel()};
}

inline std::vector<float> numbers_of(const torch::Tensor& x) {
  const torch::Tensor flat = x.contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

inline Quantized quantise(const torch::Tensor& x, RangeGroup group, int bits,
                          const Noise& noise = Noise::none()) {
  return encode(x, measure_range(x, group), bits, noise);
}

}  // namespace lowtide
