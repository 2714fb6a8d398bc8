// Processes that show each other that they live, and what they find when one of them does not.
#include "lowtide/ranks/heartbeat.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

namespace lowtide {
namespace {

using std::chrono::milliseconds;

constexpr HeartbeatOptions kFast{.beat = milliseconds(50), .expiry = milliseconds(1000)};
constexpr int kHeld = 20, kTold = 21;  // exit codes of one that lost others: it held its tongue, or told

// Ranks in processes of their own, which end when they lose one. The deputy of rank 0 is the last.
class Heartbeats : public testing::Test {
 protected:
  void TearDown() override {
    for (const pid_t rank : ranks_) {
      kill(rank, SIGKILL);
      waitpid(rank, nullptr, 0);
    }
  }

  // `stranger` is of another group, by its token.
  void start(int size, int stranger = -1) {
    Heartbeat first(kFast);  // a process is forked before there are threads, and knows the port
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0)
        be_rank({.rank = rank,
                 .size = size,
                 .address = "localhost",
                 .port = first.port(),
                 .token = rank == stranger ? 8 : 7,
                 .deputy = size - 1},
                first);
      ranks_.push_back(pid);
    }
    std::this_thread::sleep_for(milliseconds(500));  // until they have heard of each other
  }

  // Leaves in good order when it is asked to by SIGUSR1, ends all by SIGUSR2, and stays.
  [[noreturn]] static void be_rank(const HeartbeatPlace& place, Heartbeat& first) {
    sigset_t asked;
    sigemptyset(&asked);
    sigaddset(&asked, SIGUSR1);
    sigaddset(&asked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &asked, nullptr);
    {
      Heartbeat own(kFast);
      Heartbeat& mine = place.rank == 0 ? first : own;
      mine.start(place, [](const LostRanks& lost) { _exit(lost.tells ? kTold : kHeld); });
      int signal = 0;
      sigwait(&asked, &signal);
      if (signal == SIGUSR2) mine.end_all();
    }
    while (true) pause();
  }

  // Its exit code; 0 while it lives.
  int code_of(int rank, milliseconds patience) const {
    for (milliseconds waited{0}; waited <= patience; waited += milliseconds(20)) {
      int status = 0;
      if (waitpid(ranks_[static_cast<std::size_t>(rank)], &status, WNOHANG) > 0)
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      std::this_thread::sleep_for(milliseconds(20));
    }
    return 0;
  }

  void send(int rank, int signal) const { kill(ranks_[static_cast<std::size_t>(rank)], signal); }

  std::vector<pid_t> ranks_;
};

constexpr milliseconds kAmple{10'000};

TEST_F(Heartbeats, ARankThatEndsAllIsToldOfByNobodyElse) {
  for (const int failing : {0, 2}) {
    start(3);
    send(failing, SIGUSR2);
    for (const int other : {0, 1, 2}) {
      if (other != failing) EXPECT_EQ(code_of(other, kAmple), kHeld) << other << " of " << failing;
    }
    TearDown();
    ranks_.clear();
  }
}

TEST_F(Heartbeats, ARankThatIsStoppedIsToldOfByTheFirst) {
  start(3);
  send(1, SIGSTOP);
  EXPECT_EQ(code_of(0, kAmple), kTold);
  EXPECT_EQ(code_of(2, kAmple), kHeld);
}

TEST_F(Heartbeats, TheFirstIsToldOfByItsDeputy) {
  start(3);
  send(0, SIGSTOP);
  EXPECT_EQ(code_of(1, kAmple), kHeld);
  EXPECT_EQ(code_of(2, kAmple), kTold);
}

TEST_F(Heartbeats, WhoWereAllAsleepHaveNotLostEachOther) {
  start(2);
  for (const int rank : {0, 1}) send(rank, SIGSTOP);
  std::this_thread::sleep_for(3 * kFast.expiry);
  for (const int rank : {0, 1}) send(rank, SIGCONT);
  EXPECT_EQ(code_of(0, 2 * kFast.expiry), 0);
  EXPECT_EQ(code_of(1, milliseconds(0)), 0);
}

TEST_F(Heartbeats, WhoLeavesIsNotLost) {
  start(2);
  send(1, SIGUSR1);
  EXPECT_EQ(code_of(0, 2 * kFast.expiry), 0);
}

TEST_F(Heartbeats, WhoIsKilledIsSoonNotHeard) {
  Heartbeat first(kFast);
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0)
    be_rank({.rank = 1, .size = 2, .address = "localhost", .port = first.port(), .token = 7}, first);
  ranks_ = {pid};
  const auto comes_true = [&](bool heard) {
    for (milliseconds waited{0}; waited < kAmple && first.hears(1) != heard; waited += milliseconds(10))
      std::this_thread::sleep_for(milliseconds(10));
    return first.hears(1) == heard;
  };
  bool is_lost = false;
  EXPECT_FALSE(first.hears(1)) << "before it began";
  first.start({.rank = 0, .size = 2, .token = 7}, [&](const LostRanks&) { is_lost = true; });
  EXPECT_TRUE(comes_true(true));
  kill(pid, SIGKILL);
  EXPECT_TRUE(comes_true(false));
  EXPECT_FALSE(is_lost) << "that takes longer";
  first.end();
}

// As where datagrams do not pass between two machines.
TEST_F(Heartbeats, WhoWasNeverHeardOfIsNotLost) {
  start(2, /*stranger=*/1);
  send(1, SIGSTOP);
  EXPECT_EQ(code_of(0, 2 * kFast.expiry), 0);
}

}  // namespace
}  // namespace lowtide
