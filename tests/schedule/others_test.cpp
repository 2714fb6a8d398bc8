#include <gtest/gtest.h>

#include "lowtide/schedule/runs.h"
#include "lowtide/schedule/schedule.h"
#include "tests/schedule/error_of.h"

namespace lowtide {
namespace {

std::vector<BitRun> runs_of(const std::string& text, std::int64_t steps) {
  return run_lengths(*make_schedule(parse_schedule(text), steps), steps);
}
std::string error(const std::string& text, std::int64_t steps) {
  return error_of([&] { make_schedule(parse_schedule(text), steps); });
}

TEST(OtherSchedules, StaticAndFp32) {
  EXPECT_EQ(runs_of("static 5 grad=6", 10), (std::vector<BitRun>{{{5, 6}, 10}}));
  EXPECT_EQ(runs_of("fp32", 10), (std::vector<BitRun>{{{0, 0}, 10}}));
  // 24 bits and more are fp32 in arithmetic, but keep their number.
  EXPECT_EQ(runs_of("static 32 grad=24", 1), (std::vector<BitRun>{{{32, 24}, 1}}));
}

TEST(OtherSchedules, Deficit) {
  EXPECT_EQ(runs_of("deficit 3:8 grad=8 steps=4", 10), (std::vector<BitRun>{{{3, 8}, 4}, {{8, 8}, 6}}));
  EXPECT_EQ(runs_of("deficit 3:8 grad=8 steps=0", 10), (std::vector<BitRun>{{{8, 8}, 10}}));
  EXPECT_EQ(runs_of("deficit 3:8 grad=8 steps=10", 10), (std::vector<BitRun>{{{3, 8}, 10}}));
  EXPECT_NE(error("deficit 3:8 steps=11", 10).find("longer than the 10 steps"), std::string::npos);
}

TEST(OtherSchedules, Window) {
  EXPECT_EQ(runs_of("window 3:8 grad=6:8 from=2 to=5", 10),
            (std::vector<BitRun>{{{8, 8}, 2}, {{3, 6}, 3}, {{8, 8}, 5}}));
  EXPECT_EQ(runs_of("window 3:8 from=5 to=10", 10), (std::vector<BitRun>{{{8, 8}, 5}, {{3, 8}, 5}}));
  EXPECT_EQ(runs_of("window 3:8 from=5 to=5", 10), (std::vector<BitRun>{{{8, 8}, 10}}));
  EXPECT_NE(error("window 3:8 from=5 to=11", 10).find("ends beyond the 10 steps"), std::string::npos);
  EXPECT_NE(error("window 3:8 from=6 to=5", 10).find("from <= to"), std::string::npos);
  EXPECT_NE(error("window 3:8 from=-1 to=5", 10).find("from <= to"), std::string::npos);
}

TEST(OtherSchedules, DelayedRunsTheInnerScheduleOnTheRest) {
  EXPECT_EQ(runs_of("delayed 4 LT 3:8 n=2 grad=8", 6),
            (std::vector<BitRun>{{{8, 8}, 5}, {{3, 8}, 1}}));  // LT on two steps: 8 3
  const auto delayed = make_schedule(parse_schedule("delayed 25% CR 3:8 n=4"), 1000);
  const auto inner = make_schedule(parse_schedule("CR 3:8 n=4"), 750);
  for (std::int64_t step = 0; step < 250; ++step) EXPECT_EQ(delayed->at(step), (Bits{8, 8}));
  for (std::int64_t step = 0; step < 750; ++step) EXPECT_EQ(delayed->at(250 + step), inner->at(step));
}

TEST(OtherSchedules, DelayedMayBeginInFp32) {
  EXPECT_EQ(runs_of("delayed 50% at=fp32 static 4 grad=8", 10),
            (std::vector<BitRun>{{{0, 0}, 5}, {{4, 8}, 5}}));
  EXPECT_EQ(runs_of("delayed 3 at=6 static 4 grad=8", 10), (std::vector<BitRun>{{{6, 8}, 3}, {{4, 8}, 7}}));
}

TEST(OtherSchedules, DelayedRefusesWhatCannotBe) {
  EXPECT_NE(error("delayed 10 RR 3:8 n=1", 10).find("leaves nothing"), std::string::npos);
  EXPECT_NE(error("delayed 5 RR 3:8 n=8", 10).find("n=8 cycles in 5 steps after the delay"),
            std::string::npos);
  EXPECT_NE(error("delayed 100% RR 3:8", 10).find("less than 100%"), std::string::npos);
  EXPECT_NE(error("delayed -1 RR 3:8", 10).find("0 or more"), std::string::npos);
  EXPECT_NE(error("delayed 5 static 4", 10).find("same bits throughout"), std::string::npos);
  EXPECT_NE(error("delayed 5 delayed 2 RR", 10).find("cannot be delayed again"), std::string::npos);
  EXPECT_NE(error("delayed 5 fp32", 10).find("is fp32"), std::string::npos);
}

TEST(OtherSchedules, TableHasTheBitsOfItsRunsAndAsManyStepsAsTheRun) {
  EXPECT_EQ(runs_of("table 8x2 5x3 8x1 grad=6", 6),
            (std::vector<BitRun>{{{8, 6}, 2}, {{5, 6}, 3}, {{8, 6}, 1}}));
  EXPECT_EQ(runs_of("delayed 4 at=fp32 table 5x2", 6), (std::vector<BitRun>{{{0, 0}, 4}, {{5, 8}, 2}}));
  EXPECT_NE(error("table 8x2 5x3", 6).find("the table has 5 steps, but the run has 6"), std::string::npos);
  EXPECT_NE(error("table 8x2 5x3", 4).find("the table has 5 steps, but the run has 4"), std::string::npos);
  EXPECT_NE(error("delayed 1 table 8x2", 2).find("has 1 after the delay"), std::string::npos);
}

TEST(OtherSchedules, StatelessOnesHaveNoState) {
  const auto schedule = make_schedule(parse_schedule("RR"), 100);
  EXPECT_FALSE(schedule->is_stateful());
  EXPECT_EQ(schedule->state(), Json::object());
  schedule->observe(0, 1.0);
  schedule->restore(schedule->state());
  EXPECT_EQ(schedule->at(0).forward, 3);
}

TEST(RunLengths, AreThoseOfEveryStep) {
  for (const char* line : {"RR 3:8 n=8",
                           "RTH 3:8 n=4",
                           "LR 3:8 n=7",
                           "LT 2:9 n=2",
                           "CR 3:8 n=8 grad=6:8",
                           "CT 3:8 n=1000",
                           "ETV 3:8 n=6",
                           "RTV 4:8 n=10",
                           "ER 3:8 n=333 k=9",
                           "ETH 3:8 n=2",
                           "CR 8:8 n=3",
                           "delayed 377 RR 3:8 n=5 grad=4:8",
                           "delayed 10% at=fp32 static 5",
                           "fp32",
                           "window 3:8 from=1 to=999",
                           "deficit 3:8 steps=500",
                           "table 8x1 4x998 5x1",
                           "static 8 budget=0.6",
                           "delayed 5% RR 3:8 n=5 grad=(LT 6:8 n=2) budget=0.7 then 32 last=10",
                           "price 3:8 every=50 budget=0.6",
                           "progressive 3,4,6,8"}) {
    SCOPED_TRACE(line);
    const auto schedule = make_schedule(parse_schedule(line), 1000);
    std::vector<BitRun> expected;
    for (std::int64_t step = 0; step < 1000; ++step) {
      const Bits bits = schedule->at(step);
      if (expected.empty() || expected.back().bits != bits) expected.push_back({bits, 0});
      ++expected.back().count;
    }
    EXPECT_EQ(run_lengths(*schedule, 1000), expected);
  }
}

TEST(RunLengths, TakeNoTimeForManySteps) {
  const std::vector<BitRun> few = runs_of("CR 3:8 n=8", 80'000), many = runs_of("CR 3:8 n=8", kMostSteps);
  ASSERT_EQ(many.size(), few.size());
  EXPECT_EQ(step_count(many), kMostSteps);
  for (std::size_t i = 0; i < many.size(); ++i) EXPECT_EQ(many[i].bits, few[i].bits);
  EXPECT_NE(error("CR 3:8 n=8", kMostSteps + 1).find("expected 1 to 1000000000000000"), std::string::npos);
  EXPECT_NE(error_of([] { runs_of("CR 3:8 n=100000000", kMostSteps); }).find("fewer cycles"),
            std::string::npos);
}

TEST(RunLengths, ProgressiveClimbsWhereItClimbed) {
  const auto schedule = make_schedule(parse_schedule("progressive 3,4,6 window=1 patience=1"), 100);
  for (std::int64_t step = 0; step < 5; ++step) schedule->observe(step, 1.0);
  const std::vector<BitRun> runs = run_lengths(*schedule, 100);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(schedule->same_until(0), runs[0].count);
  EXPECT_EQ(runs[2].bits, (Bits{6, 8}));
}

}  // namespace
}  // namespace lowtide
