#include "lowtide/cost/summary.h"

#include <gtest/gtest.h>

#include <map>

#include "lowtide/cost/bit_operations.h"
#include "lowtide/schedule/cycles.h"

namespace lowtide {
namespace {

ScheduleSummary summary_of(const std::string& text, std::int64_t steps) {
  return summarise(parse_schedule(text), steps);
}

TEST(RelativeCost, ByHand) {
  EXPECT_EQ(step_cost({3, 8}), 9 + 2 * 24);
  EXPECT_EQ(step_cost({8, 8}), 192);
  EXPECT_DOUBLE_EQ(relative_cost({8, 8}), 0.0625);
  EXPECT_EQ(relative_cost({}), 1.0);
  EXPECT_EQ(relative_cost({32, 32}), 1.0);
  EXPECT_EQ(bit_operations({3, 8}, 10), (BitOperations{90, 240, 240}));
}

TEST(Summary, PublishedSavingOfCyclicPrecisionTraining) {
  EXPECT_NEAR(100 * summary_of("CR 3:8 n=32 grad=8", 64000).saving, 36.67, 0.005);
}

TEST(Summary, TheTenSaveWhatTheyShould) {
  const std::map<std::string_view, double> published{
      {"RR", 60.1}, {"RTH", 60.1}, {"LR", 37.2},  {"LT", 37.2}, {"CR", 36.7},
      {"CT", 36.7}, {"ETV", 36.5}, {"RTV", 36.3}, {"ER", 17.8}, {"ETH", 17.8}};
  double previous = 100.0;
  for (const CyclicSchedule& cyclic : cyclic_schedules()) {
    const double saving = 100 * summary_of(std::string(cyclic.name) + " 3:8 n=8 grad=8", 64000).saving;
    EXPECT_NEAR(saving, published.at(cyclic.name), 0.1) << cyclic.name;
    EXPECT_LT(saving, previous) << "listed in order of falling saving: " << cyclic.name;
    previous = saving;
    EXPECT_EQ(cyclic.group, saving > 50 ? "large" : saving > 30 ? "medium" : "small") << cyclic.name;
  }
}

TEST(Summary, OthersByHand) {
  const ScheduleSummary deficit = summary_of("deficit 3:8 grad=8 steps=25", 100);
  EXPECT_DOUBLE_EQ(deficit.mean_bits, 6.75);
  EXPECT_DOUBLE_EQ(deficit.relative_cost, (0.25 * 57 + 0.75 * 192) / 3072);
  EXPECT_DOUBLE_EQ(deficit.saving, 1 - (0.25 * 57 + 0.75 * 192) / 192);
  EXPECT_EQ(deficit.runs, (std::vector<BitRun>{{{3, 8}, 25}, {{8, 8}, 75}}));
  EXPECT_EQ(summary_of("static 8 grad=6", 10).saving, 0.0);
  EXPECT_EQ(summary_of("fp32", 10).relative_cost, 1.0);
  EXPECT_EQ(summary_of("fp32", 10).mean_bits, 32.0);
}

TEST(Summary, ASavingIsToldAgainstTheHighestBitsThatOccur) {
  // 377 of 1000 steps at 8 bits, 192 each; the rest at 5, 25 + 2 · 40 = 105.
  const ScheduleSummary falling = summary_of("delayed 377 at=8 static 5 grad=8", 1000);
  EXPECT_DOUBLE_EQ(falling.saving, 1 - (377 * 192 + 623 * 105) / (1000.0 * 192));
  EXPECT_DOUBLE_EQ(summary_of("delayed 50% at=fp32 static 8", 10).saving, 1 - (1 + 0.0625) / 2);
  // Without `at`, at fewer bits or for no time at all, the highest are those of the schedule that follows.
  EXPECT_EQ(peak_bits(parse_schedule("delayed 10 RR 3:5 grad=6")), (Bits{5, 6}));
  EXPECT_EQ(peak_bits(parse_schedule("delayed 10 at=4 RR 3:8 grad=6:7")), (Bits{8, 7}));
  EXPECT_EQ(peak_bits(parse_schedule("delayed 0 at=8 static 5 grad=6")), (Bits{5, 6}));
  EXPECT_EQ(peak_bits(parse_schedule("delayed 0% at=8 static 5 grad=6")), (Bits{5, 6}));
  EXPECT_EQ(peak_bits(parse_schedule("progressive 3,4,9 grad=8")), (Bits{9, 8}));
  EXPECT_EQ(peak_bits(parse_schedule("RR 3:8 grad=6 then fp32 last=5%")), Bits{});
  EXPECT_EQ(peak_bits(parse_schedule("RR 3:8 grad=6 then 32 last=5%")), (Bits{32, 6}));
  EXPECT_EQ(peak_bits(parse_schedule("RR 3:8 grad=6 then fp32 last=0%")), (Bits{8, 6}));
  EXPECT_EQ(static_line({8, 6}), "static 8 grad=6");
  EXPECT_EQ(static_line({}), "fp32");
}

TEST(Summary, OfNothingTheCostIsNothing) { EXPECT_EQ(relative_cost(BitOperations{}, 0), 0); }

TEST(Summary, AMillionStepsAreQuick) {
  const ScheduleSummary summary = summary_of("RTV 3:8 n=64 grad=8", 1'000'000);
  EXPECT_EQ(step_count(summary.runs), 1'000'000);
}

}  // namespace
}  // namespace lowtide
