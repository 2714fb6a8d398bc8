#include "lowtide/schedule/budget.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lowtide/schedule/cycles.h"
#include "lowtide/schedule/runs.h"
#include "lowtide/schedule/schedule.h"
#include "tests/schedule/error_of.h"

namespace lowtide {
namespace {

constexpr std::int64_t kSteps = 2000;

// Falls by 8 bits' worth, 4^8, in all.
double falling_rate(std::int64_t step) { return std::exp2(-16.0 * static_cast<double>(step) / kSteps); }

std::vector<BitRun> runs_of(const std::string& text, std::int64_t steps = kSteps) {
  return run_lengths(*make_schedule(parse_schedule(text), steps, falling_rate), steps);
}

std::int64_t cost_of(const std::vector<BitRun>& runs) {
  std::int64_t sum = 0;
  for (const BitRun& run : runs) sum += run.count * step_cost(run.bits);
  return sum;
}

std::string error(const std::string& text, std::int64_t steps = kSteps) {
  return error_of([&] { make_schedule(parse_schedule(text), steps, falling_rate); });
}

TEST(Budget, IsMetToTheBitOperationByTheTenAndMatched) {
  for (const double share : {0.40, 0.63, 0.82}) {
    const auto budget = std::llround(share * kSteps * step_cost({8, 8}));
    for (const CyclicSchedule& cyclic : cyclic_schedules()) {
      EXPECT_EQ(cost_of(runs_of(fmt::format("{} 3:8 n=8 budget={}", cyclic.name, share))), budget)
          << cyclic.name;
    }
    EXPECT_EQ(cost_of(runs_of(fmt::format("matched 3:8 budget={}", share))), budget);
  }
}

TEST(Budget, OfStaticIsMetWithinOneChangeBetweenTwoNeighbours) {
  for (const double share : {0.1875, 0.19, 0.40, 0.5, 0.63, 0.82, 0.999, 1.0}) {
    SCOPED_TRACE(share);
    const std::vector<BitRun> runs = runs_of(fmt::format("static 8 budget={}", share));
    int low = kMostBits, high = kFewestBits;
    for (const BitRun& run : runs) {
      low = std::min(low, run.bits.forward);
      high = std::max(high, run.bits.forward);
    }
    EXPECT_LE(high - low, 1);
    const double left =
        share * kSteps * static_cast<double>(step_cost({8, 8})) - static_cast<double>(cost_of(runs));
    EXPECT_GE(left, -1e-6);
    EXPECT_LT(left, static_cast<double>(step_cost({low + 1, 8}) - step_cost({low, 8})));
  }
  EXPECT_EQ(runs_of("static 8 budget=1"), (std::vector<BitRun>{{{8, 8}, kSteps}}));
}

// 27 bit operations lie between 5 and 6 bits: 105 and 132 in the mean of 3 to 1 steps are 111.75.
TEST(Budget, OfStaticIsSpreadEvenly) {
  const std::string share = fmt::format("{}", 111.75 / 192);
  const auto schedule = make_schedule(parse_schedule("static 8 budget=" + share), kSteps);
  for (std::int64_t step = 0; step + 4 <= kSteps; ++step) {
    int sixes = 0;
    for (std::int64_t i = step; i < step + 4; ++i) sixes += schedule->at(i).forward == 6 ? 1 : 0;
    EXPECT_EQ(sixes, 1) << step;
  }
}

TEST(Budget, ShiftsTheProfileAndKeepsItsShapeAndRange) {
  const auto schedule = make_schedule(parse_schedule("LR 3:8 n=1 budget=0.63"), kSteps);
  // In the mean of some steps the bits grow, as those of LR do.
  double before = 0;
  for (std::int64_t from = 0; from < kSteps; from += 100) {
    double mean = 0;
    for (std::int64_t step = from; step < from + 100; ++step) {
      const int bits = schedule->at(step).forward;
      EXPECT_GE(bits, 3);
      EXPECT_LE(bits, 8);
      mean += bits / 100.0;
    }
    EXPECT_GE(mean, before - 0.05);
    before = mean;
  }
  EXPECT_NEAR(before, 8, 0.2);
}

TEST(Budget, OfATableShiftsItsRunsWithinItsBits) {
  for (const double share : {0.40, 0.63, 0.82}) {
    const std::vector<BitRun> runs = runs_of(fmt::format("table 8x200 3x1000 6x800 budget={}", share));
    EXPECT_EQ(cost_of(runs), std::llround(share * kSteps * step_cost({8, 8})));
    for (const BitRun& run : runs) {
      EXPECT_GE(run.bits.forward, 3);
      EXPECT_LE(run.bits.forward, 8);
    }
  }
  // 200·192 + 1000·57 + 800·132: as it is.
  EXPECT_EQ(runs_of(fmt::format("table 8x200 3x1000 6x800 budget={}", 201000.0 / (kSteps * 192))),
            (std::vector<BitRun>{{{8, 8}, 200}, {{3, 8}, 1000}, {{6, 8}, 800}}));
  EXPECT_NE(error("table 8x200 3x1000 6x800 budget=0.29").find("cannot be met by 3 to 8 bits"),
            std::string::npos);
  EXPECT_NE(error("table 8x200 budget=0.5").find("the table has 200 steps"), std::string::npos);
}

TEST(Budget, CountsDelayTailAndGradientBits) {
  const std::int64_t budget = std::llround(0.63 * kSteps * step_cost({8, 8}));
  for (const char* line : {"delayed 10% RR 3:8 n=8 budget=0.63", "CR 3:8 n=8 budget=0.63 then fp32 last=1%",
                           "delayed 5% at=fp32 LR 3:8 n=2 budget=1.5 then 32 last=5%",
                           "CT 3:8 n=8 grad=(LR 4:8 n=3) budget=0.63", "ER 3:8 n=8 grad=6:8 budget=0.63",
                           "matched 3:8 grad=(deficit 4:8 steps=500) budget=0.63 then 8 last=100"}) {
    SCOPED_TRACE(line);
    const double share = parse_schedule(line).budget.value();
    EXPECT_EQ(cost_of(runs_of(line)), std::llround(share / 0.63 * static_cast<double>(budget)));
  }
}

TEST(Budget, ThatCannotBeMetIsRefusedWithTheRange) {
  EXPECT_NE(error("RR 3:8 budget=0.2")
                .find("budget=0.2 of static 8 grad=8 cannot be met by 3 to 8 bits; possible is "
                      "0.2969 to 1.0000"),
            std::string::npos)
      << error("RR 3:8 budget=0.2");
  EXPECT_EQ(error("RR 3:8 budget=0.2969"), "");
  EXPECT_NE(error("static 8 budget=1.01").find("0.1875 to 1.0000"), std::string::npos);
  EXPECT_NE(error("RR 3:8 budget=0.3 then fp32 last=50%").find("possible is 8.1485 to 8.5000"),
            std::string::npos)
      << error("RR 3:8 budget=0.3 then fp32 last=50%");
  // A tenth of the steps at fp32's 3·32², the others at 5 bits: (200·3072 + 1800·105) / (2000·105), and nothing else.
  EXPECT_NE(error("delayed 10% at=fp32 CR 5:5 budget=0.5").find("possible is 3.8257142857142856"),
            std::string::npos)
      << error("delayed 10% at=fp32 CR 5:5 budget=0.5");
  EXPECT_NE(error("static 8 budget=0.5", kMostBudgetSteps + 1).find("at most 1000000"), std::string::npos);
  EXPECT_NE(error("delayed 90% static 8 budget=0.95", 2 * kMostBudgetSteps).find("at most 1000000"),
            std::string::npos);
}

TEST(Budget, FitsFewStepsAndManyToo) {
  for (const std::int64_t steps : {1, 2, 3, 7, 1000}) {
    const std::vector<BitRun> runs = runs_of("CR 3:8 n=1 budget=0.63", steps);
    EXPECT_EQ(step_count(runs), steps);
    const double budget = 0.63 * static_cast<double>(steps * step_cost({8, 8}));
    EXPECT_LE(static_cast<double>(cost_of(runs)), budget + 1e-6);
    EXPECT_GT(static_cast<double>(cost_of(runs)), budget - 31);
  }
  EXPECT_EQ(cost_of(runs_of("RR 3:8 n=8 budget=0.63", 500'000)), 63 * 192 * 5'000);
}

TEST(Matched, BitsFollowTheLearningRate) {
  const auto schedule = make_schedule(parse_schedule("matched 2:16 budget=0.3"), kSteps, falling_rate);
  // A sixteenth of the rate asks for 2 bits more, whatever the constant.
  for (std::int64_t step = 600; step < 1400; step += 100) {
    double now = 0, later = 0;
    for (std::int64_t i = 0; i < 100; ++i) {
      now += schedule->at(step + i).forward / 100.0;
      later += schedule->at(step + 500 + i).forward / 100.0;
    }
    EXPECT_NEAR(later - now, 2, 0.1) << step;
  }
  const auto flat = make_schedule(parse_schedule("matched 2:16 alpha=0 budget=0.3"), kSteps, falling_rate);
  EXPECT_LE(std::abs(flat->at(0).forward - flat->at(kSteps - 1).forward), 1);
}

TEST(Matched, NeedsABudgetAndRates) {
  EXPECT_NE(error("matched 3:8").find("needs budget=SHARE"), std::string::npos);
  EXPECT_NE(error_of([] { make_schedule(parse_schedule("matched budget=0.5"), 10); }).find("than plateau"),
            std::string::npos);
  EXPECT_NE(error("matched grad=6:8 budget=0.5").find("grad=(LR 6:8 n=1)"), std::string::npos);
}

TEST(GradientLine, MovesApartFromTheForwardBits) {
  const auto pair = make_schedule(parse_schedule("RR 3:8 n=8 grad=(LR 4:7 n=3)"), kSteps);
  const auto forward = make_schedule(parse_schedule("RR 3:8 n=8"), kSteps);
  const auto gradient = make_schedule(parse_schedule("LR 4:7 n=3"), kSteps);
  for (std::int64_t step = 0; step < kSteps; ++step)
    EXPECT_EQ(pair->at(step), (Bits{forward->at(step).forward, gradient->at(step).forward}));
  EXPECT_EQ(runs_of("table 8x3 5x3 grad=(table 6x2 7x4)", 6),
            (std::vector<BitRun>{{{8, 6}, 2}, {{8, 7}, 1}, {{5, 7}, 3}}));
  EXPECT_NE(error("static 5 grad=(table 6x2)", 3).find("the table has 2 steps, but the run has 3"),
            std::string::npos);
}

TEST(Tail, IsTheLastStepsForwardOrBoth) {
  EXPECT_EQ(runs_of("static 5 grad=6 then fp32 last=20%", 10),
            (std::vector<BitRun>{{{5, 6}, 8}, {{0, 0}, 2}}));
  EXPECT_EQ(runs_of("static 5 grad=6 then 32 last=3", 10), (std::vector<BitRun>{{{5, 6}, 7}, {{32, 6}, 3}}));
  EXPECT_EQ(runs_of("delayed 2 at=8 table 5x4 then 8 last=4", 10),
            (std::vector<BitRun>{{{8, 8}, 2}, {{5, 8}, 4}, {{8, 8}, 4}}));
  EXPECT_NE(error("static 5 then fp32 last=10", 10).find("leaves nothing"), std::string::npos);
  EXPECT_EQ(parse_schedule("RR 3:8 then fp32 last=5%").last(), Bits{});
  EXPECT_EQ(parse_schedule("RR 3:8 then 16 last=5%").last(), (Bits{16, 8}));
  EXPECT_EQ(parse_schedule("RR 3:8").last(), (Bits{8, 8}));
}

}  // namespace
}  // namespace lowtide
