#include "lowtide/train/progress.h"

#include <gtest/gtest.h>

#include "tests/io/scratch.h"

namespace lowtide {
namespace {

using std::chrono::seconds;
using testing::internal::CaptureStdout;
using testing::internal::GetCapturedStdout;

ProgressLine line_at(std::int64_t step, double seconds_per_step) {
  ProgressLine line;
  line.step = step;
  line.loss = 1.25;
  line.metric = 0.5;
  line.bits = {5, 8};
  line.rate = 0.1;
  line.items_per_second = 640;
  line.seconds_per_step = seconds_per_step;
  line.relative_cost = 0.04;
  return line;
}

// Standard output is a file here, no terminal.
TEST(Progress, LinesComeByTimeNotBySteps) {
  CaptureStdout();
  const auto before = Progress::Clock::now();
  Progress progress(100, find_metric("accuracy"), "images");
  EXPECT_FALSE(progress.due(before + seconds(9)));
  EXPECT_TRUE(progress.due(Progress::Clock::now() + seconds(10)));
  progress.update(line_at(7, 1), before + seconds(15));
  EXPECT_FALSE(progress.due(before + seconds(24)));
  EXPECT_TRUE(progress.due(before + seconds(25)));
  EXPECT_EQ(GetCapturedStdout(),
            "step   7/100  loss 1.2500  accuracy 50.00 %  bits  5/8  lr 0.1  640 images/s  cost 0.0400  "
            "left 1 min 33 s\n");
}

TEST(Progress, WhatIsLeftDoesNotJump) {
  CaptureStdout();
  Progress progress(100, find_metric("accuracy"), "images");
  progress.update(line_at(50, 1));
  progress.update(line_at(50, 6));  // one slow interval: 0.8 · 1 s + 0.2 · 6 s a step
  const std::string text = GetCapturedStdout();
  EXPECT_TRUE(contains(text, "left 50 s\n", "left 1 min 40 s\n"));
}

}  // namespace
}  // namespace lowtide
