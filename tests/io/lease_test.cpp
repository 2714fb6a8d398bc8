#include "lowtide/io/lease.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <fstream>
#include <thread>

#include "lowtide/base/json.h"
#include "lowtide/io/file.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// Quick enough for a test, with room for a loaded machine: a beat may come late by ten others.
LeaseOptions quick() { return {.beat = milliseconds(20), .expiry = milliseconds(400)}; }

class Leases : public testing::Test {
 protected:
  LeaseHolder holder() const { return *parse_lease_holder(read_text_file(path_)); }

  // A lease that was left behind by a process that is described so.
  void leave(const LeaseHolder& holder) const { std::ofstream(path_) << to_text(holder); }

  // Of this process as another machine would see it.
  LeaseHolder on_another_machine() const {
    LeaseHolder other{
        .boot = "another", .pid_namespace = "pid:[1]", .pid = getpid(), .started = 1, .serial = 1};
    other.host = "node7";
    other.job = "4711_3";
    return other;
  }

  // Runs in a process of its own, which ends by `end` without cleaning up.
  static void in_another_process(const std::function<void()>& call) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      call();
      _exit(0);
    }
    waitpid(pid, nullptr, 0);
  }

  const ScratchFolder scratch_;
  const fs::path path_ = scratch_ / "run.lease";
};

TEST_F(Leases, NamesItsHolderAndIsRemovedInTheEnd) {
  {
    const Lease lease(path_);
    EXPECT_EQ(holder().pid, getpid());
    EXPECT_EQ(lease_state(path_)->holder, LeaseState::Holder::kAlive);
    EXPECT_TRUE(lease_state(path_)->is_alive());
    lease.expect_held();
    EXPECT_EQ(scratch_.entries(), 1u) << "nothing else is left in the folder";
  }
  EXPECT_EQ(lease_state(path_), std::nullopt);
  EXPECT_EQ(scratch_.entries(), 0u);
}

TEST_F(Leases, ASecondOneIsRefusedAtOnce) {
  const Lease lease(path_, {.taken = "another process is writing this run"});
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(contains(user_error([&] { Lease(path_, {.taken = "another process is writing this run"}); }),
                       scratch_.path().string() + ": another process is writing this run, process ",
                       std::to_string(getpid()) + " on "));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(5000))
      << "the kernel knows: no wait of a minute";
  lease.expect_held();
}

TEST_F(Leases, AKilledProcessLeavesNothingInTheWay) {
  in_another_process([&] {
    new Lease(path_);
    kill(getpid(), SIGKILL);
  });
  ASSERT_TRUE(fs::exists(path_));
  EXPECT_EQ(lease_state(path_)->holder, LeaseState::Holder::kDead);
  const Lease lease(path_);  // with the times that users have: it would wait a minute
  EXPECT_EQ(holder().pid, getpid());
}

TEST_F(Leases, AProcessNumberThatWasGivenAgainIsAnother) {
  {
    const Lease lease(path_);
    LeaseHolder earlier = holder();
    earlier.started -= 1;
    leave(earlier);
    EXPECT_EQ(lease_state(path_)->holder, LeaseState::Holder::kDead);
  }
  const Lease lease(path_);
  lease.expect_held();
}

TEST_F(Leases, AZombieIsDead) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    new Lease(path_);
    kill(getpid(), SIGKILL);
  }
  siginfo_t ended{};
  waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT);  // and left a zombie
  EXPECT_EQ(lease_state(path_)->holder, LeaseState::Holder::kDead);
  waitpid(pid, nullptr, 0);
}

TEST_F(Leases, OneOfAnotherMachineThatShowsLifeIsRefused) {
  leave(on_another_machine());
  std::jthread beats([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(milliseconds(20));
      utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
    }
  });
  std::string said;
  LeaseOptions options = quick();
  options.say = [&](const std::string& line) { said = line; };
  EXPECT_TRUE(contains(user_error([&] { Lease(path_, options); }), "process", "on node7, job 4711_3"));
  EXPECT_TRUE(contains(said, "run.lease is held by process", "waiting up to"));
  EXPECT_EQ(holder(), on_another_machine()) << "it is left alone";
}

TEST_F(Leases, OneOfAnotherMachineThatStaysSilentIsTakenOver) {
  leave(on_another_machine());
  // An hour ahead, or behind: clocks are not asked.
  for (const int hours : {1, -1}) {
    leave(on_another_machine());
    fs::last_write_time(path_, fs::file_time_type::clock::now() + std::chrono::hours(hours));
    const auto begun = std::chrono::steady_clock::now();
    const Lease lease(path_, quick());
    EXPECT_GE(std::chrono::steady_clock::now() - begun, quick().expiry);
    EXPECT_EQ(holder().pid, getpid());
  }
}

TEST_F(Leases, WhatNamesNobodyIsWatchedToo) {
  for (const char* text : {"", "{", "[]", "{\"pid\":1}", "{\"pid\":\"one\"}"}) {
    std::ofstream(path_) << text;
    const Lease lease(path_, quick());
    EXPECT_EQ(holder().pid, getpid()) << text;
  }
}

TEST_F(Leases, OneThatIsReleasedMeanwhileIsTaken) {
  leave(on_another_machine());
  std::jthread other([&] {
    std::this_thread::sleep_for(milliseconds(100));
    fs::remove(path_);
  });
  LeaseOptions patient = quick();
  patient.expiry = milliseconds(60'000);
  const Lease lease(path_, patient);
  lease.expect_held();
}

TEST_F(Leases, ItsHolderShowsLife) {
  const Lease lease(path_, quick());
  const auto first = fs::last_write_time(path_);
  for (int i = 0; i < 500 && fs::last_write_time(path_) == first; ++i)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_NE(fs::last_write_time(path_), first);
}

TEST_F(Leases, AHolderThatWasTakenForDeadIsToldBeforeItWrites) {
  const Lease lease(path_, quick());
  leave(on_another_machine());
  EXPECT_TRUE(contains(user_error([&] { lease.expect_held(); }), "was taken over by process", "on node7"));
  fs::remove(path_);
  EXPECT_TRUE(contains(user_error([&] { lease.expect_held(); }), "was removed"));
}

TEST_F(Leases, AnothersLeaseIsNotRemoved) {
  {
    const Lease lease(path_, quick());
    leave(on_another_machine());
  }
  EXPECT_EQ(holder(), on_another_machine());
}

// Many processes fight over what a dead one left, again and again: never two at once.
TEST_F(Leases, OneOfManyTakesWhatADeadOneLeft) {
  const fs::path inside = scratch_ / "inside", taken = scratch_ / "taken";
  const LeaseHolder dead = [&] {
    in_another_process([&] {
      new Lease(path_);
      _exit(0);
    });
    return holder();
  }();
  for (int round = 0; round < 5; ++round) {
    leave(dead);
    std::vector<pid_t> contenders;
    for (int i = 0; i < 8; ++i) {
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid != 0) {
        contenders.push_back(pid);
        continue;
      }
      try {
        const Lease lease(path_);
        lease.expect_held();
        if (::open(inside.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0666) < 0)
          _exit(3);  // somebody else is inside
        std::this_thread::sleep_for(milliseconds(200));
        lease.expect_held();
        fs::remove(inside);
        _exit(1);
      } catch (const UserError&) {
        _exit(2);
      }
    }
    int winners = 0;
    for (const pid_t pid : contenders) {
      int status = 0;
      waitpid(pid, &status, 0);
      EXPECT_NE(WEXITSTATUS(status), 3) << "two held it at once";
      winners += WEXITSTATUS(status) == 1 ? 1 : 0;
    }
    EXPECT_GE(winners, 1);
    fs::remove(path_);
  }
}

// However long another taker of this machine sleeps between its look and its rename.
TEST_F(Leases, WhatADeadOneLeftIsTakenByOneAtATime) {
  in_another_process([&] {
    new Lease(path_);
    _exit(0);
  });
  const LeaseHolder dead = holder();
  {
    const FileDescriptor other(::open(path_.c_str(), O_RDONLY));
    ASSERT_EQ(::flock(other.number(), LOCK_EX), 0);
    EXPECT_TRUE(contains(user_error([&] { const Lease lease(path_); }), "takes it over at this moment"));
    EXPECT_EQ(holder(), dead);
  }
  const Lease lease(path_);
  lease.expect_held();
}

TEST_F(Leases, ALinkToNowhereIsTold) {
  fs::create_symlink(scratch_ / "nowhere", path_);
  EXPECT_TRUE(
      contains(user_error([&] { const Lease lease(path_); }), "run.lease is a symbolic link", "remove it"));
}

// From now on link() fails in this process, as on a file system without links. False where the kernel does not let it.
bool forbid_links() {
#ifdef __NR_link
  constexpr unsigned kLink = __NR_link;
#else
  constexpr unsigned kLink = __NR_linkat;
#endif
  std::array<sock_filter, 5> filter{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kLink, 2, 0),
                                     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_linkat, 1, 0),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)}};
  const sock_fprog program{.len = filter.size(), .filter = filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(Leases, WithoutLinksTheyAreMadeAnew) {
  const fs::path notes = scratch_ / "notes";
  in_another_process([&] {
    std::ofstream note(notes);
    if (!forbid_links()) return;
    {
      const Lease first(path_, quick());
      note << (holder().pid == getpid() ? "its own, " : "another's, ");
      note << user_error([&] { const Lease second(path_, quick()); }) << ", ";
      first.expect_held();
    }
    note << (fs::exists(path_) ? "left" : "removed");
    note.close();
  });
  const std::string noted = read_text_file(notes);
  if (noted.empty()) GTEST_SKIP() << "the kernel has no filter of system calls for this process";
  EXPECT_TRUE(contains(noted, "its own, ", "another process holds it, process ", ", removed")) << noted;
}

TEST_F(Leases, OneWhoIsRefusedCanTellItFromAMistake) {
  const Lease lease(path_, quick());
  EXPECT_THROW(Lease(path_, quick()), LeaseTaken);
  leave(on_another_machine());
  EXPECT_THROW(lease.expect_held(), LeaseTaken);
}

TEST_F(Leases, AFolderThatCannotBeWrittenIsTold) {
  EXPECT_TRUE(
      contains(user_error([&] { Lease(scratch_ / "nowhere/run.lease"); }), "cannot write", "does not exist"));
}

TEST(LeaseHolders, AreReadAsTheyWereWritten) {
  const LeaseHolder holder{.boot = "b",
                           .pid_namespace = "pid:[7]",
                           .pid = 12,
                           .started = 34,
                           .serial = 5,
                           .host = "a \"host\"",
                           .job = "1_2"};
  EXPECT_EQ(parse_lease_holder(to_text(holder)), holder);
  EXPECT_EQ(describe(holder), "process 12 on a \"host\", job 1_2");
  EXPECT_EQ(parse_lease_holder("{\"boot\":1}"), std::nullopt);
  EXPECT_EQ(parse_lease_holder(std::string(10'000, '[')), std::nullopt);
  EXPECT_EQ(parse_lease_holder(to_text(holder).replace(to_text(holder).find("12"), 2, "1.5")), std::nullopt);
}

}  // namespace
}  // namespace lowtide
