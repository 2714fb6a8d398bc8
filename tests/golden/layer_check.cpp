#include "tests/golden/layer_check.h"

namespace lowtide {
namespace {

const char* const kRange[][2] = {{"activation_min", ".quantize_input.running_zero_point"},
                                 {"activation_range", ".quantize_input.running_range"}};

void copy(torch::Tensor& parameter, const torch::Tensor& recorded) {
  const torch::NoGradGuard no_grad;
  parameter.copy_(recorded);
}

}  // namespace

QuantConv2d recorded_conv(const torch::Tensor& weight, const torch::Tensor& x, const torch::Tensor& y,
                          Bits bits) {
  QuantConv2d conv(QuantConv2dOptions{.in_channels = x.size(1),
                                      .out_channels = weight.size(0),
                                      .kernel = weight.size(2),
                                      .stride = (x.size(2) + y.size(2) - 1) / y.size(2),
                                      .padding = weight.size(2) / 2,
                                      .groups = x.size(1) / weight.size(1)});
  conv->attach(execution_at(bits), "conv", 0);
  conv->to(device_under_test());
  copy(conv->weight, weight);
  return conv;
}

QuantLinear recorded_linear(const torch::Tensor& weight, const torch::Tensor& bias, ErrorRange error,
                            Bits bits) {
  QuantLinear linear(QuantLinearOptions{
      .in_features = weight.size(1), .out_features = weight.size(0), .error = error, .bias = bias.defined()});
  linear->attach(execution_at(bits), "linear", 0);
  linear->to(device_under_test());
  copy(linear->weight, weight);
  if (bias.defined()) copy(linear->bias, bias);
  return linear;
}

void expect_layer(const std::function<torch::Tensor(const torch::Tensor&)>& layer, const Recording& io,
                  std::int64_t output_terms, std::int64_t input_terms) {
  SCOPED_TRACE(io.name());
  const torch::Tensor x = io["x"].clone().requires_grad_(io.has("grad_x"));
  const torch::Tensor y = layer(x);
  EXPECT_TRUE(close_to(y, io["y"], sum_tolerance(output_terms))) << "y";
  y.backward(io["grad_y"]);
  if (io.has("grad_x")) {
    EXPECT_TRUE(close_to(x.grad(), io["grad_x"], sum_tolerance(input_terms))) << "grad_x";
  }
}

void expect_conv(QuantConv2d& conv, const Recording& io) {
  const torch::Tensor& weight = conv->weight;
  const std::int64_t inputs = weight[0].numel(),
                     outputs = weight.numel() / weight.size(1) / conv->options.groups;
  expect_layer([&](const torch::Tensor& x) -> torch::Tensor { return conv(x); }, io, inputs, outputs);
}

void expect_linear(QuantLinear& linear, const Recording& io) {
  expect_layer([&](const torch::Tensor& x) { return linear(x); }, io, linear->weight.size(1),
               linear->weight.size(0));
}

void load_running_range(torch::nn::Module& layer, const Recording& before, const std::string& name) {
  auto buffers = layer.named_buffers();
  for (const auto& [ours, recorded] : kRange) buffers[ours].copy_(before[name + recorded].view({1}));
}

void expect_running_range(const torch::nn::Module& layer, const Recording& after, const std::string& name) {
  const auto buffers = layer.named_buffers();
  for (const auto& [ours, recorded] : kRange) {
    // Two products and a sum.
    EXPECT_TRUE(close_to(buffers[ours], after[name + recorded].view({1}), 3e-7)) << name << recorded;
  }
}

}  // namespace lowtide
