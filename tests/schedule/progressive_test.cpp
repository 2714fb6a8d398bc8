#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lowtide/schedule/schedule.h"
#include "tests/schedule/error_of.h"

namespace lowtide {
namespace {

constexpr std::int64_t kSteps = 1000;

std::unique_ptr<Schedule> make(const std::string& text) {
  return make_schedule(parse_schedule(text), kSteps);
}

// Falls towards a floor, with noise that no window repeats.
double loss_at(std::int64_t step) {
  const auto t = static_cast<double>(step);
  return 1.0 + std::exp(-t / 60.0) + 0.01 * std::sin(t * t);
}

TEST(Progressive, StaysWhileTheLossFalls) {
  const auto schedule = make("progressive 3,4,6,8 grad=8 window=5 threshold=0.01 patience=1");
  for (std::int64_t step = 0; step < 200; ++step)
    schedule->observe(step, 1000.0 - static_cast<double>(step) * 4);
  EXPECT_EQ(schedule->at(200), (Bits{3, 8}));
}

TEST(Progressive, ClimbsAfterPatienceWindowsAndStopsAtTheTop) {
  const auto schedule = make("progressive 3,4,8 grad=6:8 window=5 threshold=0.01 patience=2");
  std::vector<Bits> bits;
  for (std::int64_t step = 0; step < 100; ++step) {
    bits.push_back(schedule->at(step));
    schedule->observe(step, 1.0);
  }
  // The first window sets the best, the next two are stale: 15 steps a level.
  for (std::int64_t step = 0; step < 100; ++step) {
    const Bits expected = step < 15 ? Bits{3, 6} : step < 30 ? Bits{4, 7} : Bits{8, 8};
    EXPECT_EQ(bits[static_cast<std::size_t>(step)], expected) << step;
    EXPECT_EQ(schedule->at(step), expected) << "the past stays what it was, step " << step;
  }
}

TEST(Progressive, SmallFallsAreNoFalls) {
  const auto slow = make("progressive 3,8 window=1 threshold=0.1 patience=3");
  const auto fast = make("progressive 3,8 window=1 threshold=0.1 patience=3");
  double slow_loss = 1.0;
  double fast_loss = 1.0;
  for (std::int64_t step = 0; step < 10; ++step) {
    slow->observe(step, slow_loss *= 0.95);
    fast->observe(step, fast_loss *= 0.85);
  }
  EXPECT_EQ(slow->at(10).forward, 8);
  EXPECT_EQ(fast->at(10).forward, 3);
}

TEST(Progressive, NegativeLossesFallToo) {
  const auto schedule = make("progressive 3,8 window=1 threshold=0.01 patience=1");
  for (std::int64_t step = 0; step < 50; ++step) schedule->observe(step, -1.0 - static_cast<double>(step));
  EXPECT_EQ(schedule->at(50).forward, 3);
}

TEST(Progressive, IgnoresWhatIsNoNumber) {
  const auto schedule = make("progressive 3,8 window=2 threshold=0.01 patience=1");
  for (std::int64_t step = 0; step < 50; ++step) {
    schedule->observe(step, step % 2 == 0 ? std::nan("") : std::numeric_limits<double>::infinity());
  }
  EXPECT_EQ(schedule->at(50).forward, 3);
  EXPECT_EQ(Json::parse(schedule->state().dump()), schedule->state());
}

TEST(Progressive, RestoredAtAnyStepGoesOnAsIfUninterrupted) {
  for (const std::string text :
       {"progressive 3,4,6,8 grad=6:8 window=7 threshold=0.02 patience=2",
        "delayed 40 progressive 3,4,6,8 grad=8 window=7 threshold=0.02 patience=2"}) {
    const auto whole = make(text);
    EXPECT_TRUE(whole->is_stateful());
    std::vector<Json> states;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      states.push_back(whole->state());
      whole->observe(step, loss_at(step));
    }
    EXPECT_EQ(whole->at(kSteps - 1).forward, 8) << "the test must see climbs";
    for (std::int64_t stop = 0; stop < kSteps; stop += 13) {
      const auto resumed = make(text);
      // Through text, as a checkpoint does.
      resumed->restore(Json::parse(states[static_cast<std::size_t>(stop)].dump()));
      for (std::int64_t step = stop; step < kSteps; ++step) resumed->observe(step, loss_at(step));
      EXPECT_EQ(resumed->state().dump(), whole->state().dump()) << stop;
      for (std::int64_t step = 0; step < kSteps; ++step)
        ASSERT_EQ(resumed->at(step), whole->at(step)) << stop;
    }
  }
}

TEST(Progressive, RefusesForeignOrDamagedState) {
  const auto schedule = make("progressive 3,8 window=10");
  for (const char* state : {"{}", "[]", "null", R"({"climbs":"x","sum":0,"count":0,"best":null,"stale":0})",
                            R"({"climbs":[1,2],"sum":0,"count":0,"best":null,"stale":0})",
                            R"({"climbs":[],"sum":0,"count":10,"best":null,"stale":0})"}) {
    EXPECT_NE(error_of([&] { schedule->restore(Json::parse(state)); }), "") << state;
  }
  EXPECT_EQ(schedule->at(0).forward, 3);
}

}  // namespace
}  // namespace lowtide
