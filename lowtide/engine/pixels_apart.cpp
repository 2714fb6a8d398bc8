#include "lowtide/engine/pixels_apart.h"

#include <cstring>

#include "lowtide/base/parallel.h"

namespace lowtide {
namespace {

void copy_pixel(const std::uint8_t* from, std::int64_t channels, std::uint8_t* to) {
  constexpr std::int64_t kAtOnce = 16;  // a copy of known size is two instructions
  std::int64_t c = 0;
  for (; c + kAtOnce <= channels; c += kAtOnce) std::memcpy(to + c, from + c, kAtOnce);
  if (c < channels) std::memcpy(to + c, from + c, static_cast<std::size_t>(channels - c));
}

// libtorch copies strided bytes one by one.
at::Tensor bytes_apart(const at::Tensor& code, const std::array<std::int64_t, 2>& stride) {
  const std::int64_t channels = code.size(1), width = code.size(3), image = code.size(2) * width * channels;
  at::Tensor kept = at::empty(pixels_apart(code, stride).sizes(),
                              code.options().memory_format(at::MemoryFormat::ChannelsLast));
  const std::int64_t rows = kept.size(2), cols = kept.size(3);
  constexpr std::int64_t kPixelsPerThread = 4096;  // 10 µs with 16 channels, more with more
  parallel_for(kept.size(0), kPixelsPerThread / (rows * cols), [&](std::int64_t item) {
    const std::uint8_t* from = code.data_ptr<std::uint8_t>() + item * image;
    std::uint8_t* to = kept.data_ptr<std::uint8_t>() + item * rows * cols * channels;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t col = 0; col < cols; ++col, to += channels) {
        copy_pixel(from + (row * stride[0] * width + col * stride[1]) * channels, channels, to);
      }
    }
  });
  return kept;
}

}  // namespace

at::Tensor pixels_apart(const at::Tensor& images, const std::array<std::int64_t, 2>& stride) {
  return images.slice(2, 0, images.size(2), stride[0]).slice(3, 0, images.size(3), stride[1]);
}

Quantized pixels_apart(const Quantized& images, const std::array<std::int64_t, 2>& stride) {
  const bool bytes = images.code.scalar_type() == at::kByte && images.code.device().is_cpu();
  return {bytes ? bytes_apart(images.code, stride) : contiguous(pixels_apart(images.code, stride)),
          images.scale, images.offset, images.bits};
}

bool skips_pixels(const ConvShape& shape) {
  const bool reads_one = shape.weight[2] == 1 && shape.weight[3] == 1;
  return reads_one && shape.padding == ConvShape{}.padding && shape.stride != ConvShape{}.stride;
}

ConvShape of_pixels_read(ConvShape shape) {
  shape.input = {shape.input[0], shape.input[1], shape.output_height(), shape.output_width()};
  shape.stride = {1, 1};
  return shape;
}

at::Tensor add_gradient(at::Tensor dx, const OtherGradient& other) {
  if (other.value.defined()) pixels_apart(dx, other.stride).add_(other.value);
  return dx;
}

}  // namespace lowtide
