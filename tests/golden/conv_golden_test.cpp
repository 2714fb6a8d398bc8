#include <fmt/format.h>

#include "lowtide/nn/quant_conv2d.h"
#include "lowtide/nn/quant_layer.h"
#include "tests/golden/golden_file.h"

namespace lowtide {
namespace {

class GoldenConv2d : public testing::TestWithParam<int> {};

TEST_P(GoldenConv2d, OutputGradientsAndRunningRange) {
  const GoldenFile golden("qconv2d.pt");
  const std::string c = fmt::format("c{}.", GetParam());
  const auto cfg = golden[c + "cfg"].accessor<std::int64_t, 1>();
  const auto execution = std::make_shared<Execution>();
  execution->engine = engine_under_test();
  execution->stochastic = false;  // recorded without noise
  execution->bits = {static_cast<int>(cfg[6]), static_cast<int>(cfg[7])};
  QuantConv2d conv(QuantConv2dOptions{.in_channels = cfg[0],
                                      .out_channels = cfg[1],
                                      .kernel = cfg[2],
                                      .stride = cfg[3],
                                      .padding = cfg[4],
                                      .groups = cfg[5]});
  conv->attach(execution, "conv", 0);
  {
    const torch::NoGradGuard no_grad;
    conv->weight.copy_(golden[c + "weight"]);
  }

  // Codes are exact, so what remains is the order of summation of some hundred float32 products: 1e-6, far
  // below the 1e-4 that is asked for.
  constexpr double kTolerance = 5e-6;
  const torch::Tensor x = golden[c + "x"].clone().requires_grad_();
  const torch::Tensor y = conv(x);
  EXPECT_TRUE(close_to(y, golden[c + "y"], kTolerance));
  y.backward(golden[c + "grad_y"]);
  EXPECT_TRUE(close_to(x.grad(), golden[c + "grad_x"], kTolerance));
  EXPECT_TRUE(close_to(conv->weight.grad(), golden[c + "grad_weight"], kTolerance));

  const auto buffers = conv->named_buffers();
  EXPECT_TRUE(close_to(buffers["activation_min"], golden[c + "running_zero_point"].flatten(), kTolerance));
  EXPECT_TRUE(close_to(buffers["activation_range"], golden[c + "running_range"].flatten(), kTolerance));
  conv->eval();
  EXPECT_TRUE(close_to(conv(x), golden[c + "y_eval"], kTolerance));
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenConv2d, testing::Range(0, 6));

}  // namespace
}  // namespace lowtide
