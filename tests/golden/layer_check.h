#pragma once

#include <algorithm>
#include <cmath>

#include "lowtide/nn/quant_conv2d.h"
#include "lowtide/nn/quant_linear.h"
#include "tests/golden/recording.h"

// One quantised layer between recorded tensors. Its operands are recorded, so its codes are those of the recording, to the
// last one, and what remains is the order of a sum.

namespace lowtide {

// A float32 sum of n numbers is off by about sqrt(n) 2^-24 of what it comes to where they have no common sign. Codes have
// an offset, so the numbers do not cancel as freely, and what they come to is some ten times less than that assumes; short
// sums are held to what the conversion from codes rounds. (8,192 numbers: 5.4e-5; 4e-5 was seen.)
inline double sum_tolerance(std::int64_t n) {
  return 10 * std::ldexp(1, -24) * std::sqrt(static_cast<double>(std::max<std::int64_t>(n, 256)));
}

// A convolution as recorded: its shape is that of the tensors, padded so that stride 1 keeps the size.
QuantConv2d recorded_conv(const torch::Tensor& weight, const torch::Tensor& x, const torch::Tensor& y,
                          Bits bits);
QuantLinear recorded_linear(const torch::Tensor& weight, const torch::Tensor& bias, ErrorRange error,
                            Bits bits);

// A call of the layer: its output and its share of the input's gradient (where there is one) against `io`. The gradients of
// its parameters are left in them. `terms`: of the output's sum, of the input gradient's.
void expect_layer(const std::function<torch::Tensor(const torch::Tensor&)>& layer, const Recording& io,
                  std::int64_t output_terms, std::int64_t input_terms);
void expect_conv(QuantConv2d& conv, const Recording& io);
void expect_linear(QuantLinear& linear, const Recording& io);

// A running range before and after a step, by the names that the recordings have: of the input of LAYER,
// LAYER.quantize_input.running_zero_point and .running_range.
void load_running_range(torch::nn::Module& layer, const Recording& before, const std::string& name);
void expect_running_range(const torch::nn::Module& layer, const Recording& after, const std::string& name);

}  // namespace lowtide
