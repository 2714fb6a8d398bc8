// One run by ranks that srun starts, under a real SLURM, which the test starts and ends.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <optional>

#include "lowtide/study/command.h"
#include "tests/cli/program.h"
#include "tests/cli/slurm_cluster.h"
#include "tests/study/fake_trainer.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class RanksOnSlurm : public Program {
 protected:
  void SetUp() override {
    if (const std::string missing = SlurmCluster::missing(); !missing.empty()) GTEST_SKIP() << missing;
    fs::create_directories(folder_ / "slurm");
    cluster_.emplace(folder_ / "slurm");
    setenv("MASTER_ADDR", "127.0.0.1", 1);  // its nodes' names are nobody's
  }
  void TearDown() override { unsetenv("MASTER_ADDR"); }

  // A rank on each node. `before`: words between srun's and the program's.
  static CommandEnd srun(const Words& arguments, const Words& before = {}) {
    Words words{"srun", "--nodes=2", "--ntasks=2"};
    words.insert(words.end(), before.begin(), before.end());
    words.push_back(LOWTIDE_PROGRAM);
    words.insert(words.end(), arguments.begin(), arguments.end());
    return run_command(words);
  }

  Words train(const std::string& steps) const {
    return train_arguments(
        out_, {"--steps", steps, "--shards", "2", "--log-every", "5", "--checkpoint-every", "5"});
  }

  // The lines that are not srun's own.
  static Words lines_of_program(const std::string& text) {
    Words lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      if (line.starts_with("lowtide: ")) lines.push_back(line);
    }
    return lines;
  }

  static void expect_on_each_rank(const CommandEnd& end, const std::string& message) {
    EXPECT_EQ(end.code, 2) << end.error;
    const Words lines = lines_of_program(end.error);
    EXPECT_EQ(lines.size(), 2u) << end.error;
    for (const std::string& line : lines) EXPECT_NE(line.find(message), std::string::npos) << line;
  }

  static bool is_ready(const std::future<CommandEnd>& command) {
    return command.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  std::optional<SlurmCluster> cluster_;
  const fs::path out_ = folder_ / "run";
};

TEST_F(RanksOnSlurm, SavedOnSigtermAndResumedTheyHaveTheBytesOfOneProcess) {
  constexpr const char* kSteps = "200";
  auto first = std::async(std::launch::async, [&] { return srun(train(kSteps)); });
  wait_for_metrics({out_}, [&] { return is_ready(first); });
  output_of("scancel --signal=TERM 1");
  const CommandEnd stopped = first.get();
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.error;
  EXPECT_NE(stopped.out.find("stopped at step"), std::string::npos) << stopped.out;
  EXPECT_LT(checkpoint_steps({out_}).back(), 200);
  const CommandEnd resumed = srun({"train", "--resume", out_.string()});
  EXPECT_EQ(resumed.code, 0) << resumed.error;
  EXPECT_EQ(file_bytes(RunPaths{out_}.checkpoint(200)),
            uninterrupted(200, {"--steps", kSteps, "--shards", "2"}));
}

TEST_F(RanksOnSlurm, ANodeThatGoesDownIsTold) {
  auto run = std::async(std::launch::async, [&] { return srun(train("100000")); });
  wait_for_metrics({out_}, [&] { return is_ready(run); });
  cluster_->kill_node("n2");
  const CommandEnd end = run.get();
  EXPECT_NE(end.code, 0);
  EXPECT_EQ(
      lines_of_program(end.error),
      Words{"lowtide: rank 1 is gone: it was killed, or its machine is down; the last checkpoint is whole"});
}

TEST_F(RanksOnSlurm, WrongVariablesAreOneLine) {
  expect_on_each_rank(srun(train("5"), {"env", "-u", "SLURM_PROCID"}),
                      "SLURM_PROCID is not set, though others of srun's variables are");
  expect_on_each_rank(srun(train("5"), {"env", "MASTER_PORT=http"}),
                      "MASTER_PORT is 'http'; expected a number");
  unsetenv("MASTER_ADDR");
  expect_on_each_rank(srun(train("5")), "knows no address of 'n1', where rank 0 is said to be");
}

}  // namespace
}  // namespace lowtide
