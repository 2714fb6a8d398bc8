#include "lowtide/schedule/cycles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "lowtide/base/error.h"
#include "lowtide/schedule/runs.h"
#include "lowtide/schedule/schedule.h"
#include "tests/schedule/error_of.h"

namespace lowtide {
namespace {

std::vector<int> sequence(const std::string& text, std::int64_t steps) {
  const auto schedule = make_schedule(parse_schedule(text), steps);
  std::vector<int> bits;
  for (std::int64_t step = 0; step < steps; ++step) bits.push_back(schedule->at(step).forward);
  return bits;
}

TEST(Position, IsExactWhereDoublesAreNot) {
  constexpr std::int64_t kSteps = 1'000'000'000'000'000;
  EXPECT_EQ(position(kSteps - 1, kSteps, kSteps).cycle, kSteps - 1);
  EXPECT_EQ(position(kSteps - 1, kSteps, kSteps).phase, 0.0);
  // 3·333…333 = T - 1: one step short of cycle 1, where step·n/T in doubles already says 1.
  EXPECT_EQ(position(333'333'333'333'333, 3, kSteps).cycle, 0);
  EXPECT_EQ(position(333'333'333'333'334, 3, kSteps).cycle, 1);
  EXPECT_DOUBLE_EQ(position(333'333'333'333'334, 3, kSteps).phase, 2e-15);
}

TEST(Profile, RoundsHalfToEven) {
  EXPECT_EQ(round_half_even(2.5), 2);
  EXPECT_EQ(round_half_even(3.5), 4);
  EXPECT_EQ(round_half_even(std::nextafter(4.5, 5.0)), 5);
}

TEST(Profile, GrowthLeavesLowAndApproachesHigh) {
  for (const CyclicSchedule& cyclic : cyclic_schedules()) {
    const auto growth = [&](double z) { return value_at(cyclic.profile, cyclic.shape, {}, {1, z}, {3, 8}); };
    EXPECT_NEAR(growth(0.0), 3.0, 1e-12) << cyclic.name;
    // The exponential with k = 4 comes within D e^-4 of the end.
    EXPECT_NEAR(growth(1.0), 8.0, 5 * std::exp(-4.0) + 1e-9) << cyclic.name;
    for (int i = 0; i < 100; ++i) EXPECT_LT(growth(i / 100.0), growth((i + 1) / 100.0)) << cyclic.name;
  }
}

TEST(Profile, FlipsAreMirrorImages) {
  for (const Profile profile : {Profile::kCosine, Profile::kLinear, Profile::kExponential, Profile::kRex}) {
    for (int i = 0; i <= 50; ++i) {
      const double z = i / 50.0;
      const double vertical = value_at(profile, Shape::kTriangularVertical, {}, {0, z}, {3, 8});
      const double horizontal = value_at(profile, Shape::kTriangularHorizontal, {}, {0, z}, {3, 8});
      EXPECT_NEAR(vertical, 11.0 - value_at(profile, Shape::kRepeated, {}, {0, z}, {3, 8}), 1e-12);
      EXPECT_NEAR(horizontal, value_at(profile, Shape::kRepeated, {}, {0, 1.0 - z}, {3, 8}), 1e-12);
    }
  }
}

TEST(Profile, RexBendsFromLinear) {
  const auto rex = [](double c, double z) {
    return value_at(Profile::kRex, Shape::kRepeated, {4.0, c}, {0, z}, {0, 1});
  };
  EXPECT_NEAR(rex(0.0, 0.3), 0.3, 1e-12);
  // c = 1/2, u = 1/2: 1 - (1/2) / (1/2 + 1/4) = 1/3.
  EXPECT_NEAR(rex(0.5, 0.5), 1.0 / 3.0, 1e-12);
}

TEST(Cycles, EveryCycleStartsLowWhenRepeated) {
  for (const char* text : {"RR 3:8 n=7", "LR 3:8 n=7", "CR 3:8 n=7", "ER 3:8 n=7"}) {
    const std::vector<int> bits = sequence(text, 100);  // 7 does not divide 100
    int starts = 1;
    for (std::size_t t = 1; t < bits.size(); ++t) starts += bits[t] < bits[t - 1];
    EXPECT_EQ(starts, 7) << text;
    // No left-over cycle at q_min: the last step is at or near the top.
    EXPECT_GT(bits.back(), 5) << text;
  }
}

TEST(Cycles, TriangularStartsAndEndsHigh) {
  for (const char* name : {"LT", "CT", "ETV", "ETH", "RTH"}) {
    const std::vector<int> bits = sequence(std::string(name) + " 3:8 n=6", 6000);
    EXPECT_EQ(bits.front(), 8) << name;
    EXPECT_EQ(bits.back(), 8) << name;
  }
}

TEST(Cycles, HorizontalTriangleIsAPalindromeAboutItsTurn) {
  const std::vector<int> bits = sequence("ETH 3:8 n=2", 1000);
  for (std::size_t i = 1; i < 500; ++i) EXPECT_EQ(bits[500 - i], bits[500 + i]) << i;
}

TEST(Cycles, OneStepAndACycleAStep) {
  EXPECT_EQ(sequence("RR 3:8 n=1", 1), std::vector<int>{3});
  EXPECT_EQ(sequence("RR 3:8 n=5", 5), std::vector<int>(5, 3));
  EXPECT_EQ(sequence("LT 3:8 n=4", 4), (std::vector<int>{8, 3, 8, 3}));
}

TEST(Cycles, LinearByHand) {
  // 3 + 5·t/10: 3, 3.5, 4, 4.5, … rounded half to even.
  EXPECT_EQ(sequence("LR 3:8 n=1", 10), (std::vector<int>{3, 4, 4, 4, 5, 6, 6, 6, 7, 8}));
}

TEST(Cycles, HugeStepCountsDoNotDrift) {
  constexpr std::int64_t kSteps = 1'000'000'000'000'000;
  const auto schedule = make_schedule(parse_schedule("LR 3:8 n=999999"), kSteps);
  const auto small = make_schedule(parse_schedule("LR 3:8 n=1"), 1000);
  for (const std::int64_t cycle : {0, 1, 77'777, 999'998}) {
    for (std::int64_t i = 0; i < 1000; ++i) {
      // The first step whose phase is at least i/1000; half-way points aside, a thousandth of the cycle
      // decides.
      const auto step = static_cast<std::int64_t>(
          (static_cast<long double>(cycle) + (static_cast<long double>(i) + 0.25L) / 1000) * kSteps /
          999'999);
      const double exact = 3 + 5 * (static_cast<double>(i) + 0.25) / 1000;
      EXPECT_EQ(schedule->at(step).forward, round_half_even(exact)) << cycle << " " << i;
    }
  }
  EXPECT_EQ(schedule->at(kSteps - 1).forward, 8);
  EXPECT_EQ(small->at(999).forward, 8);
}

TEST(Cycles, BeyondTheEndStaysAsItEnded) {
  const auto schedule = make_schedule(parse_schedule("LR 3:8 n=2"), 100);
  EXPECT_EQ(schedule->at(99), schedule->at(100));
  EXPECT_EQ(schedule->at(99), schedule->at(1'000'000));
}

TEST(Cycles, GradientBitsFollowTheProfile) {
  const auto schedule = make_schedule(parse_schedule("LT 4:8 n=2 grad=6:8"), 1000);
  EXPECT_EQ(schedule->at(0), (Bits{8, 8}));
  EXPECT_EQ(schedule->at(250), (Bits{6, 7}));
  EXPECT_EQ(schedule->at(500), (Bits{4, 6}));
  EXPECT_EQ(schedule->at(750), (Bits{6, 7}));
}

TEST(Cycles, RefusesWhatCannotBe) {
  const auto error = [](const std::string& text, std::int64_t steps) {
    return error_of([&] { make_schedule(parse_schedule(text), steps); });
  };
  EXPECT_NE(error("RTH 3:8 n=7", 100).find("needs an even number of cycles"), std::string::npos);
  EXPECT_NE(error("CT 3:8 n=1", 100).find("even"), std::string::npos);
  EXPECT_NE(error("RR 3:8 n=0", 100).find("at least 1"), std::string::npos);
  EXPECT_NE(error("RR 3:8 n=101", 100).find("n=101 cycles in 100 steps"), std::string::npos);
  EXPECT_NE(error("RR 8:3", 100).find("expected 3:8"), std::string::npos);
  EXPECT_NE(error("RR 3:8", 0).find("expected 1 to"), std::string::npos);
  EXPECT_NE(error("RR 1:8", 100).find("2 to 32"), std::string::npos);
  EXPECT_NE(error("RR 3:33", 100).find("2 to 32"), std::string::npos);
  EXPECT_NE(error("RR 3:8 c=1", 100).find("less than 1"), std::string::npos);
  EXPECT_NE(error("ER 3:8 k=0", 100).find("above 0"), std::string::npos);
  EXPECT_EQ(error("RR 3:8 n=100", 100), "");
}

TEST(Cycles, ASpecMadeByHandIsCheckedToo) {
  ScheduleSpec spec;
  spec.bits = {0, 8};
  EXPECT_THROW(make_schedule(spec, 100), UserError);
  spec = {};
  spec.name = "nonsense";
  EXPECT_THROW(make_schedule(spec, 100), UserError);
}

}  // namespace
}  // namespace lowtide
