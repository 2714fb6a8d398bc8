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
  std::array<std::int64_t, 2> dilation{1, 1};  // pixels from a tap to the next

  bool is_dilated() const { return dilation[0] != 1 || dilation[1] != 1; }
  std::int64_t output_height() const { return output_extent(0); }
  std::int64_t output_width() const { return output_extent(1); }
  // Multiply-accumulates for one item of the batch.
  std::int64_t macs() const {
    return output_height() * output_width() * weight[0] * weight[1] * weight[2] * weight[3];
  }

 private:
  std::int64_t output_extent(std::size_t i) const {
    return (input[i + 2] + 2 * padding[i] - dilation[i] * (weight[i + 2] - 1) - 1) / stride[i] + 1;
  }
};

}  // namespace lowtide
