#include "lowtide/bench/stage_bench.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lowtide {
namespace {

// On a CPU, as a GPU's are but for the graphs.
TEST(StageBench, TimesEveryGeometryForwardAndBack) {
  const std::vector<std::string> engines{"fp32", "simulated", "integer"};
  const StageBench bench = bench_stages(
      {.models = {"cifar-resnet8"}, .batch = 2, .engines = engines, .repeat = 1, .device = "cpu"});
  // The stem; three groups' convolutions, the strided ones, and their shortcuts'.
  ASSERT_EQ(bench.layers.size(), 8);
  for (const StageLayer& layer : bench.layers) {
    EXPECT_EQ(layer.models, std::vector<std::string>{"cifar-resnet8"});
    ASSERT_EQ(layer.engines.size(), engines.size());
    for (std::size_t i = 0; i < engines.size(); ++i) {
      EXPECT_EQ(layer.engines[i].engine, engines[i]);
      EXPECT_GT(layer.engines[i].forward.milliseconds, 0);
      EXPECT_GT(layer.engines[i].forward.least_milliseconds, 0);
      EXPECT_GT(layer.engines[i].backward.least_milliseconds, 0);
    }
  }
}

TEST(StageBench, AStageReadsItsOperandsAndWritesThem) {
  const StageBench bench = bench_stages({.models = {"cifar-resnet8"},
                                         .batch = 2,
                                         .engines = {"fp32", "simulated"},
                                         .repeat = 1,
                                         .device = "cpu"});
  const auto layer = std::find_if(bench.layers.begin(), bench.layers.end(), [](const StageLayer& of) {
    return of.shape.input[1] == 16 && of.shape.weight[0] == 16;
  });
  ASSERT_NE(layer, bench.layers.end());
  constexpr double kImages = 2.0 * 16 * 32 * 32, kWeights = 16 * 16 * 9, kMacs = kImages * 16 * 9;
  for (const StageEngineTiming& timing : layer->engines) {
    const double width = timing.engine == "fp32" ? 4 : 1;
    // Input and weight written and read; on the way back read once more, and the error written and read by two products.
    EXPECT_EQ(timing.forward.least.bytes, width * 2 * (kImages + kWeights));
    EXPECT_EQ(timing.backward.least.bytes, width * (kImages + kWeights + 3 * kImages));
    EXPECT_EQ(timing.forward.least.macs(), kMacs);
    EXPECT_EQ(timing.backward.least.macs(), 2 * kMacs);
  }
}

}  // namespace
}  // namespace lowtide
