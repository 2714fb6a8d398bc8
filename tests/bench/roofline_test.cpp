#include "lowtide/bench/roofline.h"

#include <gtest/gtest.h>

#include "lowtide/bench/work_recorder.h"
#include "lowtide/nn/quant_linear.h"
#include "tests/testing.h"

namespace lowtide {
namespace {

// A layer of 6 rows, 8 inputs and 5 outputs: operands of 48, 40 and (the error) 30 numbers, each written once and read by two of
// the three products.
LeastWork work_of_linear(Bits bits) {
  const auto recorder = std::make_shared<WorkRecorder>();
  const auto execution = std::make_shared<Execution>();
  execution->engine = recorder;
  execution->bits = bits;
  QuantLinear linear(QuantLinearOptions{.in_features = 8, .out_features = 5, .bias = false});
  linear->attach(execution, "linear", 0);
  {
    const torch::NoGradGuard no_grad;
    linear->weight.copy_(normal({5, 8}, 1));
  }
  linear(normal({6, 8}, 2).requires_grad_()).backward(normal({6, 5}, 3));
  return recorder->work();
}

TEST(Roofline, CodesOfEightBitsAreBytesAndMultipliedAsSuch) {
  const LeastWork work = work_of_linear({8, 3});
  EXPECT_EQ(work.bytes, 3 * (48 + 40 + 30));
  EXPECT_EQ(work.byte_macs, 3 * 6 * 8 * 5);
  EXPECT_EQ(work.float_macs, 0);
}

TEST(Roofline, FloatsAndWiderCodesAreFourBytes) {
  for (const Bits bits : {Bits{0, 0}, Bits{12, 16}}) {
    const LeastWork work = work_of_linear(bits);
    EXPECT_EQ(work.bytes, 4 * 3 * (48 + 40 + 30));
    EXPECT_EQ(work.byte_macs, 0);
    EXPECT_EQ(work.float_macs, 3 * 6 * 8 * 5);
  }
  const LeastWork mixed = work_of_linear({8, 0});
  EXPECT_EQ(mixed.bytes, 3 * (48 + 40) + 4 * 3 * 30);
  EXPECT_EQ(mixed.byte_macs, 6 * 8 * 5);
  EXPECT_EQ(mixed.float_macs, 2 * 6 * 8 * 5);
}

TEST(Roofline, WhatIsMultipliedAgainAndAgainIsReadTwice) {
  const WorkRecorder recorder;
  const Quantized weight = encode_rows(normal({7, 4}, 1), 8);
  const auto prepared = recorder.prepare(weight, /*transposed=*/true);
  std::vector<Quantized> inputs;
  for (std::uint64_t i = 0; i < 5; ++i) {
    inputs.push_back(encode_rows(normal({3, 4}, i), 8));
    recorder.multiply(inputs.back(), *prepared);
  }
  EXPECT_EQ(recorder.work().bytes, 3 * 28 + 5 * 2 * 12);
  EXPECT_EQ(recorder.work().byte_macs, 5 * 3 * 4 * 7);
}

TEST(Roofline, AStepIsBoundByMemoryOrByMultipliers) {
  const MachinePeaks peaks{.bytes = 1e9, .float_macs = 2e9, .tf32_macs = 8e9, .byte_macs = 16e9};
  EXPECT_DOUBLE_EQ(least_milliseconds({.bytes = 3e9, .byte_macs = 16e9}, peaks, false), 3000);
  EXPECT_DOUBLE_EQ(least_milliseconds({.bytes = 1, .byte_macs = 32e9, .float_macs = 4e9}, peaks, false),
                   4000);
  EXPECT_DOUBLE_EQ(least_milliseconds({.bytes = 1, .byte_macs = 32e9, .float_macs = 4e9}, peaks, true), 2500);
}

TEST(Roofline, AnUpdateReadsAndWritesParametersGradientsAndState) {
  EXPECT_EQ(least_update_bytes(10, 0), 10 * 2 * (4 + 4));
  EXPECT_EQ(least_update_bytes(10, 20), 10 * 2 * (4 + 4) + 20 * 2 * 4);
}

TEST(Roofline, PeaksAreMeasured) {
  const MachinePeaks peaks = measure_peaks(torch::kCPU);
  // Between a slow core and hundreds of fast ones.
  for (const double per_second : {peaks.bytes, peaks.float_macs, peaks.tf32_macs, peaks.byte_macs}) {
    EXPECT_GT(per_second, 1e8);
    EXPECT_LT(per_second, 1e15);
  }
}

}  // namespace
}  // namespace lowtide
