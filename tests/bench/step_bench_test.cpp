#include "lowtide/bench/step_bench.h"

#include <gtest/gtest.h>

#include "lowtide/tasks/image_setup.h"
#include "lowtide/tasks/setup.h"

namespace lowtide {
namespace {

constexpr const char* kModel = "cifar-resnet8";

// The way back multiplies twice as much, but for the images, whose gradient nobody needs.
double macs_per_step(std::int64_t batch) {
  const auto execution = make_execution({}, {}, /*seed=*/1);
  const ImageShape shape{3, 32, 32, 10};
  const auto model = make_image_model(kModel, shape, {}, execution);
  double forward = 0;
  for (const Ledger::Layer& layer : layers_of(*model, *execution, shape))
    forward += static_cast<double>(layer.macs);
  const double stem = 32.0 * 32 * 16 * 3 * 9;
  return static_cast<double>(batch) * (3 * forward - stem);
}

TEST(StepBench, TellsWhatAStepAsksForAtTheLeast) {
  constexpr std::int64_t kBatch = 3;
  const StepBench bench = bench_step(
      {.model = kModel, .batch = kBatch, .engines = {"fp32", "simulated", "integer"}, .repeat = 1});
  ASSERT_EQ(bench.timings.size(), 3);
  for (const StepTiming& timing : bench.timings) {
    EXPECT_EQ(timing.least.macs(), macs_per_step(kBatch)) << timing.engine;
    EXPECT_EQ(timing.least_milliseconds, least_milliseconds(timing.least, bench.peaks, timing.tf32));
    EXPECT_GT(timing.milliseconds, 0);
    EXPECT_EQ(timing.captures, 0) << "on a CPU";
  }
  const LeastWork &fp32 = bench.timings[0].least, &simulated = bench.timings[1].least,
                  &integer = bench.timings[2].least;
  EXPECT_EQ(integer.bytes, simulated.bytes) << "what the numbers ask for, whoever computes them";
  EXPECT_EQ(fp32.byte_macs, 0);
  EXPECT_GT(integer.byte_macs, 0.9 * integer.macs()) << "all but the first and the last layer";
  EXPECT_LT(integer.bytes, fp32.bytes);
}

}  // namespace
}  // namespace lowtide
