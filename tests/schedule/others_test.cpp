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

TEST(OtherSchedules, StatelessOnesHaveNoState) {
  const auto schedule = make_schedule(parse_schedule("RR"), 100);
  EXPECT_FALSE(schedule->is_stateful());
  EXPECT_EQ(schedule->state(), Json::object());
  schedule->observe(0, 1.0);
  schedule->restore(schedule->state());
  EXPECT_EQ(schedule->at(0).forward, 3);
}

}  // namespace
}  // namespace lowtide
