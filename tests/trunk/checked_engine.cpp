#include "tests/trunk/checked_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lowtide/base/torch.h"
#include "lowtide/base/torch_compat.h"
#include "lowtide/engine/pixels_apart.h"

namespace lowtide {
namespace {

using torch::Tensor;

// Of float32 sums, relative to the sum of magnitudes: a rounding is 6e-8, and no sum here has more than some thirty parts in a
// row, each of which rounds once.
constexpr double kSums = 2e-6;

Tensor wide(const Tensor& x) { return x.detach().to(torch::kCPU).to(torch::kDouble); }
Tensor wide(const Quantized& q) { return wide(decode(q)); }
double largest(const Tensor& x) { return x.numel() > 0 ? x.abs().max().item<double>() : 0; }
Tensor by_channel(const Tensor& x) { return x.view({1, -1, 1, 1}); }
Tensor over_channels(const Tensor& x) { return x.sum({0, 2, 3}); }

// A result in double precision, and how far float32 may be from it.
struct Bounded {
  Tensor value;
  double error = 0;
};

Bounded convolve(const Quantized& x, const Quantized& w, const ConvShape& s) {
  const auto of = [&](const Tensor& a, const Tensor& b) {
    return at::convolution(a, b, {}, s.stride, s.padding, {1, 1}, false, {0, 0}, s.groups);
  };
  const Tensor input = wide(x), weight = wide(w);
  return {of(input, weight), kSums * largest(of(input.abs(), weight.abs()))};
}

Bounded gradient(const Quantized& dy, const Tensor& other_operand, const ConvShape& s, bool of_input) {
  const auto of = [&](const Tensor& error, const Tensor& operand) {
    const Tensor input = of_input ? torch::empty(s.input, torch::kDouble) : operand;
    const Tensor weight = of_input ? operand : torch::empty(s.weight, torch::kDouble);
    const auto both = at::convolution_backward(error, input, weight, kNothing, s.stride, s.padding, {1, 1},
                                               false, {0, 0}, s.groups, {of_input, !of_input, false});
    return of_input ? std::get<0>(both) : std::get<1>(both);
  };
  const Tensor error = wide(dy);
  return {of(error, other_operand), kSums * largest(of(error.abs(), other_operand.abs()))};
}

// Where `counts` (all, where it is undefined), no element may be off by more than `error`.
void expect_within(const char* what, const Tensor& actual, const Tensor& expected, double error,
                   const Tensor& counts = {}) {
  ASSERT_TRUE(actual.defined()) << what;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  Tensor off = (wide(actual) - expected).abs();
  if (counts.defined()) off = off.where(counts, torch::zeros({}, torch::kDouble));
  EXPECT_LE(largest(off), error) << what << ", the largest is " << largest(expected);
}

// Codes with this range. Numbers off by up to `error` fall to the other side of a border once in a while, never further.
void expect_codes(const char* what, const Quantized& actual, const Tensor& expected, double error,
                  const Noise& noise, const Tensor& counts = {}) {
  if (actual.bits == 0) return expect_within(what, actual.code, expected, error, counts);
  const double top = std::pow(2.0, actual.bits) - 1;
  const Range range{actual.offset.to(torch::kCPU), (actual.scale.to(torch::kCPU) * top)};
  const Quantized reference = encode(expected.to(torch::kFloat), range, actual.bits, noise);
  Tensor off = (wide(actual.code) - wide(reference.code)).abs();
  if (counts.defined()) off = off.where(counts, torch::zeros({}, torch::kDouble));
  const double of_a_code = error / actual.scale.item<double>() + 1e-6 * top;
  EXPECT_LE(largest(off), 1 + 2 * of_a_code) << what;
  const double share = (off > 0).to(torch::kDouble).mean().item<double>();
  EXPECT_LE(share, 4 * of_a_code + 4.0 / static_cast<double>(off.numel())) << what << " on another side";
}

class CheckedConvNorm final : public ConvNorm {
 public:
  CheckedConvNorm(const Engine& engine, ConvNormCall call, int& stages_checked)
      : engine_(engine),
        call_(std::move(call)),
        stages_checked_(stages_checked),
        y_(convolve(call_.input, call_.conv->weight, call_.shape)) {
    normalise();
    tested_ = engine.conv_norm(call_);
    if (call_.shows_output) expect_within("convolution", tested_->output(), y_.value, y_.error);
  }

  const Tensor& output() const override { return tested_->output(); }

  Range range() override {
    const Range range = tested_->range();
    expect_range("range", range, rectified());
    return range;
  }

  Quantized encode(const Range& range, DeviceBits bits) override {
    const Quantized codes = tested_->encode(range, bits);
    if (!is_float_bits(bits)) {
      EXPECT_TRUE(codes.offset.equal(range.min));
    }
    expect_codes("codes", codes, rectified(), z_.error, Noise::none());
    expect_running_statistics();
    return codes;
  }

  MeasuredCodes encode_measured(DeviceBits bits) override {
    MeasuredCodes measured = tested_->encode_measured(bits);
    EXPECT_TRUE(measured.codes.offset.equal(measured.range.min));
    expect_range("range", measured.range, rectified());
    expect_codes("codes", measured.codes, rectified(), z_.error, Noise::none());
    expect_running_statistics();
    return measured;
  }

  LayerInput add(const Tensor& residual, DeviceBits reader) override {
    if (residual.defined()) z_.value = z_.value + wide(residual);
    z_.error += 1e-7 * largest(z_.value);
    LayerInput sum = tested_->add(residual, reader);
    expect_within("sum", sum.activation().value, rectified(), z_.error);
    if (sum.activation().range.min.defined()) {
      expect_range("range of the sum", sum.activation().range, rectified());
      if (!is_float_bits(reader))
        expect_codes("codes of the sum", sum.encode_measured(reader).codes, rectified(), z_.error,
                     Noise::none());
    }
    expect_running_statistics();
    return sum;
  }

  NormGradients norm_gradient(Tensor gradient, const ErrorFormat& format, bool wants_residual) override {
    const Tensor given = wide(gradient);
    NormGradients result = tested_->norm_gradient(std::move(gradient), format, wants_residual);
    expect_norm_gradients(result, {given, 0}, format, wants_residual);
    return result;
  }

  NormGradients producer_gradient(const Quantized& error, const OtherGradient& other, ConvNorm& producer,
                                  const ErrorFormat& format, bool wants_residual) override {
    const Bounded at_input = gradient_of_input(error, other);
    auto& before = static_cast<CheckedConvNorm&>(producer);
    NormGradients result = tested_->producer_gradient(error, other, *before.tested_, format, wants_residual);
    before.expect_norm_gradients(result, at_input, format, wants_residual);
    return result;
  }

  // From a gradient at the result that is known up to its error.
  void expect_norm_gradients(const NormGradients& result, const Bounded& gradient, const ErrorFormat& format,
                             bool wants_residual) {
    const Tensor passed = call_.relu ? (z_.value > 0) : torch::ones_like(z_.value, torch::kBool);
    const Tensor clear = call_.relu ? (z_.value.abs() > z_.error) : passed;
    const Tensor g = gradient.value.where(passed, torch::zeros({}, torch::kDouble));

    const double n = static_cast<double>(g.numel() / g.size(1));
    const double unclear = clear.logical_not().sum().item<double>() * largest(gradient.value);
    const double x_error = 2 * y_.error * largest(inverse_), max_deviation = largest(x_) + x_error;
    const Tensor bias = over_channels(g), weight = over_channels(g * x_);
    const double sum_error = kSums * largest(over_channels(g.abs())) + unclear + n * gradient.error;
    const double product_error = kSums * largest(over_channels((g * x_).abs())) +
                                 x_error * largest(over_channels(g.abs())) + unclear * max_deviation +
                                 n * gradient.error * max_deviation;
    expect_within("gradient of the norm's bias", result.bias, bias, sum_error);
    expect_within("gradient of the norm's weight", result.weight, weight, product_error);
    if (wants_residual) expect_within("gradient of the residual", result.residual, g, gradient.error, clear);

    Tensor dx = g;
    double error = kSums * largest(g) + gradient.error;
    if (call_.norm.uses_batch) {
      dx = g - by_channel(bias / n) - x_ * by_channel(weight / n);
      error += (sum_error + max_deviation * product_error + x_error * largest(weight)) / n;
    }
    const double factor = largest(inverse_ * weight_);
    error = factor * error + largest(dx) * largest(weight_) * largest(inverse_error_);
    dx = dx * by_channel(inverse_ * weight_);
    expect_codes("error", result.error.for_input, dx, error, format.noise, clear);
    if (!is_float_bits(format.bits)) {
      const Quantized& q = result.error.for_input;
      const double top = std::pow(2.0, format.bits) - 1;
      // An element of which it is not clear whether it passed may have been the least or the greatest.
      const double extremes = error + (unclear > 0 ? factor * largest(gradient.value) : 0);
      EXPECT_NEAR(q.offset.item<double>(), dx.min().item<double>(), extremes);
      EXPECT_NEAR(q.scale.item<double>() * top, (dx.max() - dx.min()).item<double>(),
                  2 * extremes + 1e-6 * largest(dx) + 1e-8 * top);
    }
    if (format.bifurcate) {
      expect_within("float error", result.error.for_weight.code, dx, error, clear);
    } else {
      EXPECT_TRUE(result.error.for_weight.code.equal(result.error.for_input.code));
    }
  }

  Tensor weight_gradient(const Quantized& error) override {
    const Bounded expected = gradient_of_weight(error);
    Tensor result = tested_->weight_gradient(error);
    engine_.finish_gradients();
    expect_within("gradient of the weight", result, expected.value, expected.error);
    ++stages_checked_;
    return result;
  }

  Tensor input_gradient(const Quantized& error, const OtherGradient& other, ConvNorm* producer) override {
    const Bounded expected = gradient_of_input(error, other);
    auto* before = static_cast<CheckedConvNorm*>(producer);
    Tensor result = tested_->input_gradient(error, other, before ? before->tested_.get() : nullptr);
    // The producer may already have taken out what its ReLU stops.
    const Tensor passes = before && before->call_.relu ? before->z_.value > before->z_.error : Tensor();
    expect_within("gradient of the input", result, expected.value, expected.error, passes);
    return result;
  }

 private:
  Bounded gradient_of_input(const Quantized& error, const OtherGradient& other) const {
    Bounded expected = lowtide::gradient(error, wide(call_.conv->weight), call_.shape, /*of_input=*/true);
    if (other.value.defined()) {
      const Tensor more = wide(other.value);
      expected.error += kSums * largest(more);
      pixels_apart(expected.value, other.stride).add_(more);
    }
    return expected;
  }

  Bounded gradient_of_weight(const Quantized& error) const {
    return lowtide::gradient(error, wide(call_.input), call_.shape, /*of_input=*/false);
  }

  Tensor rectified() const { return call_.relu ? torch::relu(z_.value) : z_.value; }

  void expect_range(const char* what, const Range& range, const Tensor& z) const {
    EXPECT_NEAR(range.min.item<double>(), z.min().item<double>(), z_.error) << what;
    EXPECT_NEAR(range.range.item<double>(), (z.max() - z.min()).item<double>(), 2 * z_.error) << what;
  }

  void normalise() {
    const NormParameters& norm = call_.norm;
    const double n = static_cast<double>(y_.value.numel() / y_.value.size(1));
    mean_ = norm.uses_batch ? y_.value.mean({0, 2, 3}) : wide(norm.running_mean);
    variance_ = norm.uses_batch ? y_.value.var({0, 2, 3}, /*unbiased=*/false) : wide(norm.running_variance);
    weight_ = wide(norm.weight);
    inverse_ = (variance_ + kNormEpsilon).rsqrt();
    x_ = (y_.value - by_channel(mean_)) * by_channel(inverse_);
    z_.value = x_ * by_channel(weight_) + by_channel(wide(norm.bias));
    // A deviation is off by as much as the numbers are; d(1/s) = ds / s².
    const double y_error = y_.error + 1e-7 * largest(y_.value);
    inverse_error_ = norm.uses_batch ? 2 * y_error * inverse_ * inverse_ : 2e-7 * inverse_;
    z_.error = largest(weight_) *
                   (2 * y_error * largest(inverse_) + largest(inverse_error_ / inverse_) * largest(x_)) +
               2e-7 * (largest(z_.value) + largest(wide(norm.bias)));
    running_mean_ = wide(norm.running_mean).clone();
    running_variance_ = wide(norm.running_variance).clone();
    if (!norm.uses_batch) return;
    const double unbias = n > 1 ? n / (n - 1) : 1;
    running_mean_ = (1 - norm.momentum) * running_mean_ + norm.momentum * mean_;
    running_variance_ = (1 - norm.momentum) * running_variance_ + norm.momentum * unbias * variance_;
  }

  void expect_running_statistics() const {
    const double y = y_.error + 1e-7 * largest(y_.value);
    expect_within("running mean", call_.norm.running_mean, running_mean_, y + 1e-7 * largest(running_mean_));
    // (s + d)² - s² = 2 s d + d²
    const double variance = 2 * y * (std::sqrt(largest(variance_)) + y);
    expect_within("running variance", call_.norm.running_variance, running_variance_,
                  variance + 1e-6 * largest(running_variance_));
  }

  const Engine& engine_;
  const ConvNormCall call_;
  int& stages_checked_;
  Bounded y_;  // of the convolution
  Bounded z_;  // after the normalisation, and the sum; before ReLU
  Tensor mean_, variance_, weight_, inverse_, inverse_error_, x_, running_mean_, running_variance_;
  std::unique_ptr<ConvNorm> tested_;
};

}  // namespace

std::unique_ptr<ConvNorm> CheckedEngine::conv_norm(const ConvNormCall& call) const {
  ConvNormCall asked = call;
  asked.shows_output |= shows_outputs_;
  return std::make_unique<CheckedConvNorm>(*inner_, std::move(asked), stages_checked_);
}

}  // namespace lowtide
