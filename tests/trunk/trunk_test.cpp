#include "lowtide/trunk/trunk.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/trunk/trunks.h"

namespace lowtide {
namespace {

TEST(Trunk, ServesOneBackwardPass) {
  const Geometry& geometry = geometry_named("Stem");
  TrunkNetwork network(geometry, 1);
  attach_layers(network, execution_at({8, 8}), LayerRules(std::vector<std::string>{}));
  const torch::Tensor loss = network.trunk.forward(input_of(geometry, 0)).value.sum();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), std::exception);
}

// The gradient that a trunk is given may have other readers.
TEST(Trunk, LeavesTheGradientAlone) {
  for (const Target& target : available()) {
    for (const Geometry& geometry : geometries()) {
      TrunkNetwork network(geometry, 1);
      const auto execution = execution_at({8, 8});
      execution->engine = target.make();
      attach_layers(network, execution, LayerRules(std::vector<std::string>{}));
      network.to(torch::Device(target.device));
      const torch::Tensor y = network.trunk.forward(input_of(geometry, 0).to(target.device).requires_grad_());
      const torch::Tensor gradient =
          normal(y.sizes(), 3).contiguous(torch::MemoryFormat::ChannelsLast).to(target.device);
      const torch::Tensor before = gradient.clone();
      y.backward(gradient);
      EXPECT_TRUE(same(gradient, before)) << target.name() << " " << geometry.name;
    }
  }
}

// What is not finite stays so: the training loop looks for it.
TEST(Trunk, NotFiniteInputGivesNoFiniteOutput) {
  for (const Target& target : available()) {
    const Geometry& geometry = geometry_named("Basic");
    TrunkNetwork network(geometry, 1);
    const auto execution = execution_at({8, 8});
    execution->engine = target.make();
    attach_layers(network, execution, LayerRules(std::vector<std::string>{}));
    network.to(torch::Device(target.device));
    torch::Tensor x = input_of(geometry, 0);
    x[1][2][3][4] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(network.trunk.forward(x.to(target.device)).value.isfinite().any().item<bool>())
        << target.name();
  }
}

// Running statistics are plain means over the batches while they are re-estimated.
TEST(Trunk, ReEstimationGivesPlainMeans) {
  const Geometry& geometry = geometry_named("Stem");
  TrunkNetwork network(geometry, 1);
  attach_layers(network, execution_at({0, 0}), LayerRules(std::vector<std::string>{}));
  ConvStage& stage = network.blocks[0].stages[0];
  const torch::NoGradGuard no_grad;
  const auto batch = [&](int i) { return normal(geometry.input, 50 + i) * (i + 1) + i; };
  network.trunk.forward(batch(9));  // what was before does not count
  stage.norm->start_re_estimation();
  torch::Tensor mean = torch::zeros({16}, torch::kDouble), variance = mean.clone();
  for (int i = 0; i < 4; ++i) {
    const torch::Tensor y =
        torch::conv2d(batch(i), stage.conv->weight, {}, 1, /*padding=*/1).to(torch::kDouble);
    network.trunk.forward(batch(i));
    mean += y.mean({0, 2, 3}) / 4;
    variance += y.var({0, 2, 3}, /*unbiased=*/true) / 4;
  }
  network.eval();
  network.trunk.forward(batch(8));  // an evaluation in between is no batch
  network.train();
  EXPECT_TRUE(close_to(stage.norm->running_mean, mean, 1e-5));
  EXPECT_TRUE(close_to(stage.norm->running_variance, variance, 1e-5));
  stage.norm->end_re_estimation();
  network.trunk.forward(batch(0));  // moves by a tenth again
  const torch::Tensor y =
      torch::conv2d(batch(0), stage.conv->weight, {}, 1, /*padding=*/1).to(torch::kDouble);
  EXPECT_TRUE(close_to(stage.norm->running_mean, 0.9 * mean + 0.1 * y.mean({0, 2, 3}), 1e-5));
}

}  // namespace
}  // namespace lowtide
