#pragma once

#include <array>
#include <cstdint>

namespace lowtide {

// The geometry of a two-dimensional convolution; padding is a true zero.
struct ConvShape {
  std::array<std::int64_t, 4> input{};   // N, C, H, W
  std::array<std::int64_t, 4> weight{};  // out, in / groups, height, width
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::int64_t groups = 1;

  std::int64_t output_height() const { return (input[2] + 2 * padding[0] - weight[2]) / stride[0] + 1; }
  std::int64_t output_width() const { return (input[3] + 2 * padding[1] - weight[3]) / stride[1] + 1; }
  // Multiply-accumulates for one item of the batch.
  std::int64_t macs() const {
    return output_height() * output_width() * weight[0] * weight[1] * weight[2] * weight[3];
  }
};

}  // namespace lowtide
