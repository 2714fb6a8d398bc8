#include "lowtide/nn/strided_input.h"

#include <cstring>

#include "lowtide/nn/placeholder.h"
#include "lowtide/quant/pieces.h"

namespace lowtide {
namespace {

void copy_pixel(const std::uint8_t* from, std::int64_t channels, std::uint8_t* to) {
  constexpr std::int64_t kAtOnce = 16;  // a copy of known size is two instructions
  std::int64_t c = 0;
  for (; c + kAtOnce <= channels; c += kAtOnce) std::memcpy(to + c, from + c, kAtOnce);
  if (c < channels) std::memcpy(to + c, from + c, static_cast<std::size_t>(channels - c));
}

// As pixels_apart, in memory of its own.
at::Tensor codes_apart(const at::Tensor& code, const std::array<std::int64_t, 2>& steps) {
  const std::int64_t channels = code.size(1), width = code.size(3), image = code.size(2) * width * channels;
  at::Tensor kept = at::empty(pixels_apart(code, steps).sizes(),
                              code.options().memory_format(at::MemoryFormat::ChannelsLast));
  const std::int64_t rows = kept.size(2), cols = kept.size(3);
  constexpr std::int64_t kPixelsAThread = 4096;  // 10 µs with 16 channels, more with more
  for_each_piece(kept.size(0), kPixelsAThread / (rows * cols), [&](std::int64_t item) {
    const std::uint8_t* from = code.data_ptr<std::uint8_t>() + item * image;
    std::uint8_t* to = kept.data_ptr<std::uint8_t>() + item * rows * cols * channels;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t col = 0; col < cols; ++col, to += channels) {
        copy_pixel(from + (row * steps[0] * width + col * steps[1]) * channels, channels, to);
      }
    }
  });
  return kept;
}

}  // namespace

void keep_only_what_is_read(ConvCall& call) {
  ConvShape& shape = call.shape;
  const bool skips = shape.weight[2] == 1 && shape.weight[3] == 1 && shape.padding[0] == 0 &&
                     shape.padding[1] == 0 && shape.stride[0] * shape.stride[1] > 1;
  const bool bytes = call.input.bits > 0 && call.input.bits <= kByteBits;
  if (!skips || !bytes || !call.engine->fuses() || !call.input.code.device().is_cpu()) return;
  call.whole_input = shape.input;
  call.steps = shape.stride;
  call.input.code = codes_apart(call.input.code, shape.stride);
  shape.input[2] = shape.output_height();
  shape.input[3] = shape.output_width();
  shape.stride = {1, 1};
}

at::Tensor whole_input_gradient(at::Tensor of_what_was_read, const ConvCall& call) {
  if (!of_what_was_read.defined() || call.steps == ConvShape{}.stride) return of_what_was_read;
  if (call.summed_by && call.summed_by->shape.stride == call.steps) {
    call.summed_by->gradient_of_pixels = std::move(of_what_was_read);
    return placeholder(call.whole_input);
  }
  at::Tensor whole =
      at::zeros(call.whole_input, of_what_was_read.options().memory_format(at::MemoryFormat::ChannelsLast));
  pixels_apart(whole, call.steps).copy_(of_what_was_read);
  return whole;
}

}  // namespace lowtide
