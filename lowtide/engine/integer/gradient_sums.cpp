#include "lowtide/engine/integer/gradient_sums.h"

#include <algorithm>

#include "lowtide/base/simd.h"
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

// to[c] += `count` values of each channel, `step` apart
LOWTIDE_SIMD void add_columns(const std::int32_t* from, std::int64_t step, std::int64_t count,
                              std::int64_t channels, std::int64_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) to[c] += from[i * step + c];
  }
}

// The sums of one image's positions, and how they lie.
struct Positions {
  std::vector<std::int32_t> sums;  // [row][column][channel]
  std::int64_t rows, cols, channels;

  // Of each row, over `count` columns from `first` on in steps of `step`: [row][channel].
  std::vector<std::int64_t> along_rows(std::int64_t first, std::int64_t step, std::int64_t count) const {
    std::vector<std::int64_t> result(static_cast<std::size_t>(rows * channels));
    for (std::int64_t row = 0; row < rows; ++row) {
      add_columns(sums.data() + (row * cols + first) * channels, step * channels, count, channels,
                  result.data() + row * channels);
    }
    return result;
  }
};

// Adds up `count` rows of `from`, from `first` on in steps of `step`.
void add_rows(const std::vector<std::int64_t>& from, std::int64_t channels, std::int64_t first,
              std::int64_t step, std::int64_t count, std::int64_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t* row = from.data() + (first + i * step) * channels;
    for (std::int64_t c = 0; c < channels; ++c) to[c] += row[c];
  }
}

// What is the same for all input channels of one output channel and kernel position.
struct RowValues {
  std::int64_t input_zeros = 0;   // N zx
  std::int64_t error_term = 0;    // (shift - zx) Σ (q - shift)
  std::int64_t input_factor = 0;  // shift - z
  double scale = 0;               // s sx
  double error_value = 0;         // s ex Σ (q - z)
  double input_scale = 0;         // sx e
  double constant = 0;            // N e ex
};

LOWTIDE_SIMD void write_row(const RowValues& of, const std::int64_t* sum, std::int64_t step,
                            const std::int64_t* input_sum, std::int64_t channels, float* out) {
  const RowValues v = of;
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::int64_t input = input_sum[c] - v.input_zeros;  // Σ (qx - zx)
    const std::int64_t centred = sum[c * step] + v.error_term + v.input_factor * input;
    out[c] = static_cast<float>(v.scale * static_cast<double>(centred) + v.error_value +
                                v.input_scale * static_cast<double>(input) + v.constant);
  }
}

}  // namespace

GradientSums::GradientSums(const Quantized& dy, const Quantized& x, const ConvShape& shape,
                           const Shifts& shifts)
    : error_(Affine::of(dy)),
      input_(Affine::of(x)),
      shifts_(shifts),
      outputs_(shape.weight[0]),
      inputs_(shape.input[1]) {
  const bool wants_error = shifts.input != input_.zero || input_.residual != 0;
  const Positions error{wants_error ? position_sums(dy) : std::vector<std::int32_t>(), shape.output_height(),
                        shape.output_width(), outputs_};
  const Positions input{position_sums(x), shape.input[2], shape.input[3], inputs_};
  const auto places = static_cast<std::size_t>(shape.weight[2] * shape.weight[3]);
  positions_.resize(places);
  error_sums_.resize(places * static_cast<std::size_t>(outputs_));
  input_sums_.resize(places * static_cast<std::size_t>(inputs_));
  const std::int64_t row_step = shape.stride[0], col_step = shape.stride[1];
  for (std::int64_t kx = 0; kx < shape.weight[3]; ++kx) {
    const Span cols = valid_outputs(kx, col_step, shape.padding[1], input.cols, error.cols);
    const std::int64_t width = cols.last - cols.first;
    const auto error_rows =
        wants_error ? error.along_rows(cols.first, 1, width) : std::vector<std::int64_t>();
    const auto input_rows = input.along_rows(cols.first * col_step + kx - shape.padding[1], col_step, width);
    for (std::int64_t ky = 0; ky < shape.weight[2]; ++ky) {
      const Span rows = valid_outputs(ky, row_step, shape.padding[0], input.rows, error.rows);
      const std::int64_t height = rows.last - rows.first, place = ky * shape.weight[3] + kx;
      positions_[static_cast<std::size_t>(place)] = shape.input[0] * height * width;
      if (wants_error) {
        add_rows(error_rows, outputs_, rows.first, 1, height, error_sums_.data() + place * outputs_);
      }
      add_rows(input_rows, inputs_, rows.first * row_step + ky - shape.padding[0], row_step, height,
               input_sums_.data() + place * inputs_);
    }
  }
}

void GradientSums::values(const Row& row, float* out) const {
  const std::int64_t n = positions_[static_cast<std::size_t>(row.place)];
  const std::int64_t q = error_sums_[static_cast<std::size_t>(row.place * outputs_ + row.output)];
  const double scale = error_.scale, input_scale = input_.scale;
  RowValues of;
  of.input_zeros = n * input_.zero;
  of.error_term = (shifts_.input - input_.zero) * (q - n * shifts_.error);
  of.input_factor = shifts_.error - error_.zero;
  of.scale = scale * input_scale;
  of.error_value = scale * input_.residual * static_cast<double>(q - n * error_.zero);
  of.input_scale = input_scale * error_.residual;
  of.constant = static_cast<double>(n) * error_.residual * input_.residual;
  write_row(of, row.sum, row.step, input_sums_.data() + row.place * inputs_ + row.first, row.channels, out);
}

}  // namespace lowtide::integer
