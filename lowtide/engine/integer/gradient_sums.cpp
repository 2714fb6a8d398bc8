#include "lowtide/engine/integer/gradient_sums.h"

#include <utility>

#include "lowtide/base/simd.h"
#include "lowtide/engine/integer/tap_sums.h"

namespace lowtide::integer {
namespace {

// What is the same for all input channels of one output channel and tap.
struct RowValues {
  std::int64_t input_zeros = 0;   // N zx
  std::int64_t error_term = 0;    // (bias - zx) Σ (q - bias)
  std::int64_t input_factor = 0;  // bias - z
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
                           const CodeBiases& biases, KeptVector<std::int64_t> input_sums)
    : error_(Affine::of(dy)),
      input_(Affine::of(x)),
      biases_(biases),
      outputs_(shape.weight[0]),
      inputs_(shape.input[1]),
      pixels_(covered_pixels(shape)),
      error_sums_(pixels_.size() * static_cast<std::size_t>(outputs_)),
      input_sums_(std::move(input_sums)) {
  if (biases.input == input_.zero_point && input_.residual == 0) return;
  TapSums errors(dy, shape, Covered::kOutputs);
  errors.add_all();
  error_sums_ = errors.by_tap();
}

void GradientSums::values(const Row& row, float* out) const {
  const std::int64_t n = pixels_[static_cast<std::size_t>(row.tap)];
  const std::int64_t q = error_sums_[static_cast<std::size_t>(row.tap * outputs_ + row.output)];
  const double scale = error_.scale, input_scale = input_.scale;
  RowValues of;
  of.input_zeros = n * input_.zero_point;
  of.error_term = (biases_.input - input_.zero_point) * (q - n * biases_.error);
  of.input_factor = biases_.error - error_.zero_point;
  of.scale = scale * input_scale;
  of.error_value = scale * input_.residual * static_cast<double>(q - n * error_.zero_point);
  of.input_scale = input_scale * error_.residual;
  of.constant = static_cast<double>(n) * error_.residual * input_.residual;
  write_row(of, row.sum, row.step, input_sums_.data() + row.tap * inputs_ + row.first, row.channels, out);
}

}  // namespace lowtide::integer
