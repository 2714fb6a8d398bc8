#include "lowtide/engine/integer/gradient_sums.h"

#include <algorithm>

#include "lowtide/engine/integer/pack.h"

namespace lowtide::integer {
namespace {

// Outputs whose tap at kernel position k lies within the input, along one dimension.
struct Span {
  std::int64_t first, last;
};

Span valid_outputs(std::int64_t k, std::int64_t stride, std::int64_t padding, std::int64_t input,
                   std::int64_t output) {
  const std::int64_t low = std::max<std::int64_t>(0, padding - k);
  const std::int64_t first = (low + stride - 1) / stride;
  const std::int64_t room = input - 1 + padding - k;
  const std::int64_t last = room < 0 ? first : std::min(output, room / stride + 1);
  return {first, std::max(first, last)};
}

std::vector<std::int32_t> position_sums(const Quantized& q) {
  const std::int64_t items = q.code.size(0), elements = q.code.numel() / items;
  std::vector<std::int32_t> sums(static_cast<std::size_t>(elements));
  sum_over_items(q.code.data_ptr<std::uint8_t>(), items, elements, sums.data());
  return sums;
}

void add_channels(const std::int32_t* from, std::int64_t channels, std::int64_t* to) {
  for (std::int64_t c = 0; c < channels; ++c) to[c] += from[c];
}

}  // namespace

GradientSums::GradientSums(const Quantized& dy, const Quantized& x, const ConvShape& shape)
    : error_(Affine::of(dy)),
      input_(Affine::of(x)),
      kernel_cols_(shape.weight[3]),
      outputs_(shape.weight[0]),
      inputs_(shape.input[1]) {
  const std::vector<std::int32_t> error = position_sums(dy), input = position_sums(x);
  const std::int64_t out_rows = shape.output_height(), out_cols = shape.output_width();
  const std::int64_t places = shape.weight[2] * shape.weight[3];
  positions_.resize(static_cast<std::size_t>(places));
  error_sums_.resize(static_cast<std::size_t>(places * outputs_));
  input_sums_.resize(static_cast<std::size_t>(places * inputs_));
  for (std::int64_t ky = 0; ky < shape.weight[2]; ++ky) {
    const Span rows = valid_outputs(ky, shape.stride[0], shape.padding[0], shape.input[2], out_rows);
    for (std::int64_t kx = 0; kx < shape.weight[3]; ++kx) {
      const Span cols = valid_outputs(kx, shape.stride[1], shape.padding[1], shape.input[3], out_cols);
      const std::int64_t place = ky * kernel_cols_ + kx;
      positions_[static_cast<std::size_t>(place)] =
          shape.input[0] * (rows.last - rows.first) * (cols.last - cols.first);
      for (std::int64_t oy = rows.first; oy < rows.last; ++oy) {
        const std::int64_t iy = oy * shape.stride[0] + ky - shape.padding[0];
        for (std::int64_t ox = cols.first; ox < cols.last; ++ox) {
          const std::int64_t ix = ox * shape.stride[1] + kx - shape.padding[1];
          add_channels(error.data() + (oy * out_cols + ox) * outputs_, outputs_,
                       error_sums_.data() + place * outputs_);
          add_channels(input.data() + (iy * shape.input[3] + ix) * inputs_, inputs_,
                       input_sums_.data() + place * inputs_);
        }
      }
    }
  }
}

float GradientSums::value(std::int64_t sum, std::int64_t shift, std::int64_t o, std::int64_t c,
                          std::int64_t ky, std::int64_t kx) const {
  const std::int64_t place = ky * kernel_cols_ + kx;
  const std::int64_t n = positions_[static_cast<std::size_t>(place)];
  const std::int64_t q = error_sums_[static_cast<std::size_t>(place * outputs_ + o)];
  const std::int64_t qx = input_sums_[static_cast<std::size_t>(place * inputs_ + c)];
  const std::int64_t centred_error = q - n * error_.zero, centred_input = qx - n * input_.zero;
  const std::int64_t centred = sum + (shift - input_.zero) * q - error_.zero * centred_input;
  const double scale = error_.scale, input_scale = input_.scale;
  return static_cast<float>(scale * input_scale * static_cast<double>(centred) +
                            scale * input_.residual * static_cast<double>(centred_error) +
                            input_scale * error_.residual * static_cast<double>(centred_input) +
                            static_cast<double>(n) * error_.residual * input_.residual);
}

}  // namespace lowtide::integer
