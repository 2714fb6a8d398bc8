// Studies as jobs of a real SLURM, which the test starts and ends.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>

#include "lowtide/io/file.h"
#include "lowtide/io/lease.h"
#include "lowtide/study/command.h"
#include "tests/cli/program.h"
#include "tests/cli/slurm_cluster.h"
#include "tests/study/fake_trainer.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class StudyOnSlurm : public Program {
 protected:
  void SetUp() override {
    if (const std::string missing = SlurmCluster::missing(); !missing.empty()) GTEST_SKIP() << missing;
    fs::create_directories(folder_ / "slurm");
    cluster_.emplace(folder_ / "slurm");
  }

  // Two members, which save where they are told to and nowhere else.
  std::vector<std::string> study(const fs::path& out, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"study",
                                       "suite",
                                       "--recipe",
                                       recipe_.string(),
                                       "--out",
                                       out.string(),
                                       "--schedules",
                                       "CR,static",
                                       "--seeds",
                                       "1",
                                       "--steps",
                                       "600",
                                       "--checkpoint-every",
                                       "0",
                                       "--eval-every",
                                       "0",
                                       "--threads",
                                       "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::string run_well(const std::vector<std::string>& arguments) {
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.code, 0) << finished.error;
    return finished.out;
  }

  RunPaths member(int index) const { return {out_ / (index == 0 ? "CR-seed1" : "static-seed1")}; }

  pid_t trainer(int index) const {
    const auto lease = lease_state(member(index).lease());
    return lease && lease->who && lease->is_alive() ? static_cast<pid_t>(lease->who->pid) : 0;
  }

  // Waits until both have trained for some steps in a new process, and stops each there: it goes on when SLURM says SIGCONT and
  // SIGTERM to it.
  void hold_both() {
    std::array<std::string, 2> before;
    std::array<bool, 2> held{};
    for (const int index : {0, 1}) before[index] = metrics(index);
    const bool trained = comes_true([&] {
      for (const int index : {0, 1}) {
        if (held[index] || trainer(index) == 0 || metrics(index) == before[index]) continue;
        kill(trainer(index), SIGSTOP);
        held[index] = true;
      }
      start_queued();
      return held[0] && held[1];
    });
    if (!trained) throw std::runtime_error("they do not train: " + said());
  }

  std::string metrics(int index) const {
    return fs::exists(member(index).metrics()) ? file_bytes(member(index).metrics()) : "";
  }

  // The state of a member's job, empty where it has none.
  static std::string job_state(int index) {
    std::istringstream lines(run_command({"squeue", "-h", "-r", "-p", "low", "-o", "%K %T"}).out);
    for (int task = 0; lines >> task;) {
      std::string state;
      lines >> state;
      if (task == index) return state;
    }
    return "";
  }

  // A job that was queued again waits two minutes; here, as long as its former processes take to end: what they report would
  // be taken for the end of the new ones.
  void start_queued() {
    if (Clock::now() - looked_at_queue_ < std::chrono::seconds(2)) return;
    looked_at_queue_ = Clock::now();
    std::set<std::string> queued;
    std::istringstream jobs(
        run_command({"squeue", "-h", "-r", "-p", "low", "-t", "PD", "-o", "%F_%K %r"}).out);
    for (std::string job, reason; jobs >> job >> reason;) {
      if (reason == "BeginTime") queued.insert(job);
      if (queued_.contains(job)) run_command({"scontrol", "update", "JobId=" + job, "StartTime=now"});
    }
    queued_ = queued;
  }

  void expect_queued_again(int index) const {
    EXPECT_TRUE(comes_true([&] { return job_state(index) == "PENDING"; })) << index << ": " << said();
  }

  void expect_both_to_end() {
    EXPECT_TRUE(comes_true([&] {
      start_queued();
      return fs::exists(member(0).result()) && fs::exists(member(1).result());
    })) << said();
  }

  // What SLURM and the runs have to say, where something failed.
  std::string said() const {
    std::string text = "\n" + run_command({"squeue", "--all"}).out;
    for (const fs::directory_entry& entry : fs::directory_iterator(out_)) {
      if (entry.path().extension() == ".out")
        text += entry.path().filename().string() + ":\n" + file_bytes(entry.path());
    }
    return text;
  }

  std::int64_t saved_step(int index) const {
    const std::vector<std::int64_t> steps = checkpoint_steps(member(index));
    return steps.empty() ? 0 : steps.back();
  }

  void expect_bytes_of_a_local_study() {
    run_well(study(folder_ / "local", {"--jobs", "2"}));
    for (const int index : {0, 1}) {
      const RunPaths here = member(index), local{folder_ / "local" / here.folder.filename()};
      EXPECT_EQ(file_bytes(here.checkpoint(600)), file_bytes(local.checkpoint(600))) << here.folder;
    }
  }

  using Clock = std::chrono::steady_clock;

  std::optional<SlurmCluster> cluster_;
  std::set<std::string> queued_;  // again, when last looked at
  Clock::time_point looked_at_queue_;
  const fs::path out_ = folder_ / "my study";
};

TEST_F(StudyOnSlurm, PreemptedCancelledAndOnANodeThatGoesDownItEndsAsALocalOne) {
  EXPECT_TRUE(
      contains(run_well(study(out_, {"--submit", "slurm", "--array-limit", "2", "--partition", "low"})),
               "submitted 2 runs as job 1;", "lowtide study status '" + out_.string() + "'"));
  hold_both();
  EXPECT_TRUE(contains(run_well({"study", "status", out_.string()}), "running", ", job 1_0", ", job 1_1",
                       "2 running"));
  EXPECT_TRUE(
      contains(run_well(study(out_, {"--submit", "slurm"})), "every run is done, trained now or queued"));

  // Preempted: saved, and queued again.
  output_of("sbatch --partition=high --array=0-1 --output=/dev/null --wrap=true");
  for (const int index : {0, 1}) {
    expect_queued_again(index);
    EXPECT_GT(saved_step(index), 0) << said();
    EXPECT_LT(saved_step(index), 600) << said();
  }

  // A node goes down: SLURM queues again what was there.
  hold_both();
  const std::int64_t before = saved_step(0);
  const std::string node = output_of("squeue -h -r -p low -t R -o %N_%K");
  const std::string lost = node.find("n1_0") != std::string::npos ? "n1" : "n2";
  cluster_->kill_node(lost);
  expect_queued_again(0);
  EXPECT_EQ(saved_step(0), before) << "it could not save";
  EXPECT_EQ(trainer(0), 0);

  // Cancelled: what runs saves, nothing is queued again.
  EXPECT_TRUE(contains(run_well({"study", "cancel", out_.string()}), "cancelled job 1;"));
  EXPECT_TRUE(comes_true([] { return job_state(0).empty() && job_state(1).empty(); })) << said();
  EXPECT_GT(saved_step(1), 0);
  const std::string status = run_well({"study", "status", out_.string()});
  EXPECT_TRUE(contains(status, "saved", "not in the queue: submit the study again", "2 saved, 2 in all"));
  EXPECT_TRUE(contains(run_well({"study", "cancel", out_.string()}), "no job of this study is in the queue"));

  // Submitted again, on the node that is left, both go on to their ends.
  EXPECT_TRUE(contains(run_well({"study", "suite", "--study", (out_ / "study.toml").string(), "--out",
                                 out_.string(), "--submit", "slurm"}),
                       "submitted 2 runs"));
  expect_both_to_end();
  EXPECT_TRUE(contains(run_well({"study", "status", out_.string()}), "2 done, 2 in all"));
  EXPECT_TRUE(contains(said(), "goes on", "stopped"));
  expect_bytes_of_a_local_study();
}

TEST_F(StudyOnSlurm, OutOfTimeItSavesAndIsQueuedAgain) {
  // SLURM looks at limits every half a minute, and tells those that will be over in the next minute and a half.
  run_well(study(out_, {"--submit", "slurm", "--time", "1"}));
  hold_both();
  for (const int index : {0, 1}) {
    expect_queued_again(index);
    EXPECT_GT(saved_step(index), 0) << said();
  }
  expect_both_to_end();  // the next look may come before: then they are queued once more
  expect_bytes_of_a_local_study();
}

TEST_F(StudyOnSlurm, MistakesAreOneLine) {
  expect_mistake(study(out_, {"--submit", "slurm", "--partition", "nowhere"}), "sbatch did not take");
  expect_mistake(study(out_, {"--submit", "slurm", "--time", "soon"}), "sbatch did not take");
  expect_mistake({"study", "cancel", out_.string()}, "this study was not submitted to SLURM");
}

}  // namespace
}  // namespace lowtide
