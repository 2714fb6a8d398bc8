// A run of several ranks that is killed, stopped or asked to stop.
#include <chrono>

#include "tests/cli/ranks_program.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// A run that is not done before something happens to it.
class LongRun : public RanksProgram {
 protected:
  Flags flags(const std::string& steps = "100000", const Flags& more = {}) const {
    Flags flags = images({"--checkpoint-every", "5", "--log-every", "5"}, steps);
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }

  const fs::path out_ = folder_ / "run";
};

TEST_F(LongRun, OfWhichARankIsKilledEndsWithinSeconds) {
  Process process(folder_.path(), flags("100000", {"--ranks", "4", "--out", out_.string()}));
  wait_for_metrics({out_}, process);
  const std::vector<pid_t> ranks = children_of(process.pid());
  ASSERT_EQ(ranks.size(), 4u);
  const auto before = std::chrono::steady_clock::now();
  kill(ranks[2], SIGKILL);
  const Finished finished = process.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));
  EXPECT_EQ(finished.code, 1);
  EXPECT_EQ(
      finished.error,
      "lowtide: rank 2 was killed by signal 9 (Killed); the others stop, and the last checkpoint is whole\n");
  const Finished evaluated = run({"eval", out_.string()});
  EXPECT_EQ(evaluated.code, 0) << evaluated.error;
}

TEST_F(LongRun, OfRanksStartedElsewhereNamesTheOneThatIsGone) {
  std::vector<Process> ranks = started_ranks(flags("100000", {"--out", out_.string()}), some_port(3), 2);
  wait_for_metrics({out_}, ranks[0]);
  ranks[1].send(SIGKILL);
  EXPECT_EQ(ranks[1].wait().code, 128 + SIGKILL);
  const Finished first = ranks[0].wait();
  EXPECT_EQ(first.code, 1);
  EXPECT_EQ(first.error,
            "lowtide: rank 1 is gone: it was killed, or its machine is down; the last checkpoint is whole\n");
}

// Its connections stay open: only its silence tells.
TEST_F(LongRun, OfWhichARankIsStoppedEndsWithinSeconds) {
  Process process(folder_.path(), flags("100000", {"--ranks", "2", "--out", out_.string()}));
  wait_for_metrics({out_}, process);
  kill(children_of(process.pid()).at(1), SIGSTOP);
  const Finished finished = process.wait();
  EXPECT_EQ(finished.code, 1);
  EXPECT_EQ(
      finished.error,
      "lowtide: rank 1 has shown no life for 10 s: it is stopped, or its machine is down or cut off; the "
      "last checkpoint is whole\n");
  const Finished evaluated = run({"eval", out_.string()});
  EXPECT_EQ(evaluated.code, 0) << evaluated.error;
}

TEST_F(LongRun, OfRanksStartedElsewhereTellsOfAFirstOneThatIsStopped) {
  std::vector<Process> ranks = started_ranks(flags("100000", {"--out", out_.string()}), some_port(5), 4);
  wait_for_metrics({out_}, ranks[0]);
  ranks[0].send(SIGSTOP);
  std::string told;
  for (const std::size_t rank : {1, 2, 3}) {
    const Finished finished = ranks[rank].wait();
    EXPECT_EQ(finished.code, 1);
    told += finished.error;
  }
  EXPECT_EQ(
      told,
      "lowtide: rank 0 has shown no life for 10 s: it is stopped, or its machine is down or cut off; the "
      "last checkpoint is whole\n");
  ranks[0].send(SIGKILL);
  ranks[0].wait();
}

TEST_F(LongRun, StopsAtOneStepWhenAnyRankIsAskedTo) {
  constexpr const char* kSteps = "80";
  Process process(folder_.path(), flags(kSteps, {"--ranks", "2", "--out", out_.string()}));
  wait_for_metrics({out_}, process);
  kill(children_of(process.pid()).at(1), SIGTERM);
  const Finished stopped = process.wait();
  ASSERT_EQ(stopped.code, 128 + SIGTERM) << stopped.error;
  EXPECT_EQ(stopped.error, "");
  const std::int64_t step = checkpoint_steps({out_}).back();
  EXPECT_NE(stopped.out.find(fmt::format("stopped at step {}", step)), std::string::npos) << stopped.out;
  const Finished resumed = run({"train", "--resume", out_.string(), "--ranks", "4"});
  EXPECT_EQ(resumed.code, 0) << resumed.error;
  EXPECT_EQ(bytes_of({out_}), trained(flags(kSteps), "whole", {}));
}

TEST_F(LongRun, StopsWhenTheOneThatStartedItIsAskedTo) {
  Process process(folder_.path(), flags("100000", {"--ranks", "2", "--out", out_.string()}));
  wait_for_metrics({out_}, process);
  process.send(SIGTERM);
  const Finished stopped = process.wait();
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.error;
  EXPECT_NE(stopped.out.find("stopped at step"), std::string::npos) << stopped.out;
}

TEST_F(LongRun, StopsWhenAnyOfSeveralThatWereLaunchedIsAskedTo) {
  std::vector<Process> ranks = started_ranks(flags("100000", {"--out", out_.string()}), some_port(13), 2);
  wait_for_metrics({out_}, ranks[0]);
  ranks[1].send(SIGTERM);
  for (Process& rank : ranks) {
    const Finished stopped = rank.wait();
    EXPECT_EQ(stopped.code, 128 + SIGTERM);
    EXPECT_EQ(stopped.error, "");
  }
  const std::string line = fmt::format("stopped at step {}", checkpoint_steps({out_}).back());
  EXPECT_NE(file_bytes(folder_ / "rank0/stdout").find(line), std::string::npos) << line;
}

// As a scheduler asks: every process by itself, and who started the ranks passes it on while they are in their step.
TEST_F(LongRun, SavesThoughItIsAskedTwice) {
  Process process(folder_.path(), flags("100000", {"--ranks", "2", "--out", out_.string()}));
  wait_for_metrics({out_}, process);
  const std::vector<pid_t> ranks = children_of(process.pid());
  kill(ranks.at(1), SIGSTOP);  // the step of rank 0 takes as long
  kill(ranks.at(0), SIGTERM);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  process.send(SIGTERM);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  kill(ranks.at(1), SIGCONT);
  const Finished stopped = process.wait();
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.error;
  EXPECT_NE(stopped.out.find("stopped at step"), std::string::npos) << stopped.out;
}

// While the ranks still meet and read data.
TEST_F(LongRun, ThatIsAskedToStopBeforeItTrainsEndsAsBySignals) {
  for (const bool tells_one_rank : {false, true}) {
    Process process(folder_.path(), flags("100000", {"--ranks", "2", "--out", out_.string()}));
    while (children_of(process.pid()).size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    tells_one_rank ? kill(children_of(process.pid())[1], SIGTERM) : kill(process.pid(), SIGTERM);
    const Finished stopped = process.wait();
    EXPECT_EQ(stopped.code, 128 + SIGTERM);
    EXPECT_EQ(stopped.error, "");
  }
}

}  // namespace
}  // namespace lowtide
