#include "tests/golden/layer_check.h"

namespace lowtide {
namespace {

TEST(GoldenConv2d, OutputGradientsAndRunningRange) {
  for (const Recording& c : Recording("qconv2d.pt").numbered("c")) {
    SCOPED_TRACE(c.name());
    const std::vector<std::int64_t> cfg = c.numbers("cfg");
    QuantConv2d conv =
        recorded_conv(c["weight"], c["x"], c["y"], {static_cast<int>(cfg[6]), static_cast<int>(cfg[7])});
    const QuantConv2dOptions& options = conv->options;
    ASSERT_EQ((std::vector{options.in_channels, options.out_channels, options.kernel, options.stride,
                           options.padding, options.groups}),
              (std::vector(cfg.begin(), cfg.begin() + 6)));
    expect_conv(conv, c);
    const torch::Tensor& y = c["y"];
    EXPECT_TRUE(close_to(conv->weight.grad(), c["grad_weight"], sum_tolerance(y.numel() / y.size(1))));

    const auto buffers = conv->named_buffers();
    EXPECT_TRUE(same(buffers["activation_min"], c["running_zero_point"].flatten()));
    EXPECT_TRUE(same(buffers["activation_range"], c["running_range"].flatten()));
    conv->eval();
    EXPECT_TRUE(close_to(conv(c["x"]), c["y_eval"], sum_tolerance(conv->weight[0].numel())));
  }
}

}  // namespace
}  // namespace lowtide
