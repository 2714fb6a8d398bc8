#include "lowtide/train/signals.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace lowtide {
namespace {

void (*handler_of(int number))(int) {
  struct sigaction action {};
  sigaction(number, nullptr, &action);
  return action.sa_handler;
}

class StopSignal : public testing::TestWithParam<int> {};

TEST_P(StopSignal, IsRememberedAndEndsNothing) {
  {
    const StopSignals signals;
    EXPECT_EQ(StopSignals::received(), 0);
    raise(GetParam());
    EXPECT_EQ(StopSignals::received(), GetParam());
    raise(GetParam());  // to a process, and once more to its group
    EXPECT_EQ(StopSignals::received(), GetParam());
  }
  EXPECT_EQ(handler_of(GetParam()), SIG_DFL) << "as it was before";
}

INSTANTIATE_TEST_SUITE_P(All, StopSignal, testing::ValuesIn(kStopSignals));

// A process of its own is ended.
TEST(StopSignalsDeathTest, ASecondRequestEnds) {
  const auto ask_twice = [](int number) {
    const StopSignals signals;
    raise(number);
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    raise(number);
    std::_Exit(0);
  };
  for (const int number : {SIGTERM, SIGINT})
    EXPECT_EXIT(ask_twice(number), testing::KilledBySignal(number), "");
  for (const int number : {SIGHUP, SIGUSR1}) EXPECT_EXIT(ask_twice(number), testing::ExitedWithCode(0), "");
}

TEST(StopSignals, TheFirstIsTheReason) {
  const StopSignals signals;
  raise(SIGUSR1);
  raise(SIGTERM);
  EXPECT_EQ(StopSignals::received(), SIGUSR1);
}

TEST(StopSignals, NohupStaysInForce) {
  signal(SIGHUP, SIG_IGN);
  {
    const StopSignals signals;
    raise(SIGHUP);
    EXPECT_EQ(StopSignals::received(), 0);
  }
  EXPECT_EQ(handler_of(SIGHUP), SIG_IGN);
  signal(SIGHUP, SIG_DFL);
}

TEST(StopSignals, AClosedPipeEndsNothing) {
  { const StopSignals signals; }
  EXPECT_EQ(handler_of(SIGPIPE), SIG_IGN) << "also for what is printed after the work";
}

TEST(StopSignals, AreResetForAChild) {
  signal(SIGHUP, SIG_IGN);
  {
    const StopSignals signals;
    reset_stop_signals();
    EXPECT_EQ(handler_of(SIGUSR2), SIG_DFL);
    EXPECT_EQ(handler_of(SIGHUP), SIG_IGN) << "nohup is for children too";
  }
  signal(SIGHUP, SIG_DFL);
}

}  // namespace
}  // namespace lowtide
