// What a run is not to lose, and what the program is not to destroy: signals, closed and full outputs, damaged folders.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <memory>

#include "lowtide/base/json.h"
#include "lowtide/io/file.h"
#include "tests/cli/program.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// Standard output of a process that is about to start.
void print_to(const char* path) {
  const int file = open(path, O_WRONLY);
  if (file < 0 || dup2(file, STDOUT_FILENO) < 0) _exit(98);
}

void print_to_a_closed_pipe() {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0 || dup2(ends[1], STDOUT_FILENO) < 0) _exit(98);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(Program, EverySignalThatAsksToStopSavesFirst) {
  struct Stopped {
    int signal;
    fs::path out;
    std::unique_ptr<Process> process;
  };
  std::vector<Stopped> runs;
  for (const int signal : {SIGHUP, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU}) {
    Stopped run{signal, folder_ / std::to_string(signal), nullptr};
    fs::create_directory(run.out);
    run.process = std::make_unique<Process>(
        run.out,
        train_arguments(run.out, {"--steps", "100000", "--checkpoint-every", "0", "--threads", "1"}));
    runs.push_back(std::move(run));
  }
  for (const Stopped& run : runs) {
    wait_for_metrics({run.out}, *run.process);
    run.process->send(run.signal);
    if (run.signal != SIGINT) run.process->send(run.signal);  // the terminal's and the shell's; one a second
  }
  for (const Stopped& run : runs) {
    const Finished finished = run.process->wait();
    EXPECT_EQ(finished.code, 128 + run.signal) << finished.error;
    EXPECT_TRUE(contains(finished.out, "continue with: lowtide train --resume"));
    EXPECT_EQ(checkpoint_steps(RunPaths{run.out}).size(), 1u) << run.signal;
  }
}

TEST_F(Program, NohupKeepsARunGoing) {
  const fs::path out = folder_ / "run";
  Process process(folder_.path(), train_arguments(out, {"--steps", "60"}), [] { signal(SIGHUP, SIG_IGN); });
  wait_for_metrics({out}, process);
  process.send(SIGHUP);
  const Finished finished = process.wait();
  EXPECT_EQ(finished.code, 0) << finished.error;
  EXPECT_TRUE(fs::exists(RunPaths{out}.result()));
}

TEST_F(Program, TrainsOnWhenNobodyReadsItsOutput) {
  const std::string expected = uninterrupted(40, {});
  const Finished piped = run(train_arguments(folder_ / "piped"), print_to_a_closed_pipe);
  EXPECT_EQ(piped.code, 0) << piped.error;
  EXPECT_EQ(piped.error, "");
  EXPECT_EQ(file_bytes(RunPaths{folder_ / "piped"}.checkpoint(40)), expected);
  const Finished closed = run(train_arguments(folder_ / "closed"), [] { close(STDOUT_FILENO); });
  EXPECT_EQ(closed.code, 0) << closed.error;
  EXPECT_EQ(file_bytes(RunPaths{folder_ / "closed"}.checkpoint(40)), expected);
  EXPECT_EQ(read_jsonl(RunPaths{folder_ / "closed"}.metrics()).lines.size(),
            read_jsonl(RunPaths{folder_ / "piped"}.metrics()).lines.size())
      << "nothing was printed into a file";
  EXPECT_TRUE(fs::exists(RunPaths{folder_ / "closed"}.result()));
}

TEST_F(Program, LostOutputIsAMistake) {
  const auto full = [] { print_to("/dev/full"); };
  const std::string message = "cannot write standard output: No space left on device";
  ASSERT_EQ(run(train_arguments(folder_ / "run")).code, 0);
  const std::vector<std::vector<std::string>> commands{
      {"--help"},
      {"--version"},
      {"train", "--help"},
      {"schedule", "CR"},
      {"schedule", "--all", "--json"},
      {"schedule", "CR", "--svg", "-"},
      {"train", "--recipe", recipe_.string(), "--print-config"},
      {"compare", (folder_ / "run").string()},
      {"train", "--resume", (folder_ / "run").string()}};
  for (const auto& command : commands) {
    SCOPED_TRACE(command[0]);
    expect_mistake(command, message, full);
  }
  expect_mistake({"schedule", "CR"}, "cannot write standard output", [] { close(STDOUT_FILENO); });
  // Training is not lost with what it prints.
  expect_mistake(train_arguments(folder_ / "unheard"), message, full);
  EXPECT_TRUE(fs::exists(RunPaths{folder_ / "unheard"}.result()));
}

TEST_F(Program, WritesWhatIsThereAsWhatItIs) {
  const std::string svg = run({"schedule", "CR", "--svg", "-"}).out;
  EXPECT_TRUE(svg.starts_with("<svg") || svg.starts_with("<?xml")) << svg.substr(0, 200);
  EXPECT_TRUE(svg.ends_with("</svg>\n")) << "nothing but the picture";
  std::ofstream(folder_ / "file") << "old";
  fs::create_symlink("file", folder_ / "link");
  ASSERT_EQ(run({"schedule", "CR", "--svg", (folder_ / "link").string()}).code, 0);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(file_bytes(folder_ / "file"), svg);
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  Process process(folder_.path(), {"schedule", "CR", "--svg", (folder_ / "pipe").string()});
  EXPECT_EQ(file_bytes(folder_ / "pipe"), svg);
  EXPECT_EQ(process.wait().code, 0);
  EXPECT_TRUE(fs::is_fifo(folder_ / "pipe"));
}

TEST_F(Program, ReportsToStandardOutput) {
  ASSERT_EQ(run(train_arguments(folder_ / "run")).code, 0);
  const Finished page = run({"report", (folder_ / "run").string(), "--html", "-"});
  if (page.error.find("page is missing") != std::string::npos) GTEST_SKIP() << page.error;
  EXPECT_EQ(page.code, 0) << page.error;
  EXPECT_TRUE(contains(page.out.substr(0, 100), "<!doctype html>"));
  EXPECT_TRUE(contains(page.error, "1 run"));
  expect_mistake({"report", (folder_ / "run").string(), "--html", "-"},
                 "cannot write standard output: No space", [] { print_to("/dev/full"); });
  EXPECT_TRUE(contains(page.out.substr(page.out.size() - 100), "</html>"));
}

TEST_F(Program, AStartThatFailedDoesNotBlockTheCorrectedCommand) {
  const std::string expected = uninterrupted(40, {});
  for (const bool resume : {false, true}) {
    const fs::path out = folder_ / (resume ? "resumed" : "again");
    const std::vector<std::string> more =
        resume ? std::vector<std::string>{"--resume"} : std::vector<std::string>{};
    expect_mistake(train_arguments(out, {"--lr", "1e30", "--clip", "5", "--checkpoint-every", "100",
                                         "--log-every", "100"}),
                   "not finite");
    const Finished corrected = run(train_arguments(out, more));
    EXPECT_EQ(corrected.code, 0) << corrected.error;
    EXPECT_EQ(file_bytes(RunPaths{out}.checkpoint(40)), expected);
    EXPECT_EQ(read_run_file(RunPaths{out}.run()).at("recipe").at("lr"), 0.05);
  }
}

TEST_F(Program, CheckpointsThatCannotBeReadStopAResume) {
  const fs::path out = folder_ / "run";
  ASSERT_EQ(run(train_arguments(out)).code, 0);
  fs::remove(RunPaths{out}.result());
  fs::rename(RunPaths{out}.checkpoints(), out / "elsewhere");
  fs::create_symlink("checkpoints", RunPaths{out}.checkpoints());
  const std::string metrics = file_bytes(RunPaths{out}.metrics());
  expect_mistake(train_arguments(out, {"--resume"}), "Too many levels of symbolic links");
  fs::remove(RunPaths{out}.checkpoints());
  fs::create_symlink("/nowhere/unmounted", RunPaths{out}.checkpoints());
  expect_mistake(train_arguments(out, {"--resume"}), "checkpoints");
  EXPECT_EQ(file_bytes(RunPaths{out}.metrics()), metrics) << "nothing was cut";
}

TEST_F(Program, ACheckpointThatDoesNotFitIsRefused) {
  const fs::path out = folder_ / "run";
  const RunPaths paths{out};
  ASSERT_EQ(run(train_arguments(out)).code, 0);
  fs::remove(paths.result());
  const std::vector<std::string> resume{"train", "--resume", out.string()};
  const std::string run_json = file_bytes(paths.run());

  Json changed = Json::parse(run_json);
  changed["recipe"]["lr"] = 0.01;
  std::ofstream(paths.run()) << changed;
  expect_mistake(resume, "it was written with lr 0.05, and run.json has 0.01");
  std::ofstream(paths.run()) << run_json;

  const std::string checkpoint = file_bytes(paths.checkpoint(40));
  std::string damaged = checkpoint;
  damaged[damaged.size() - 1000] ^= 1;
  std::ofstream(paths.checkpoint(40)) << damaged;
  expect_mistake(resume, "the bytes of its tensors are not those that were written");
  expect_mistake({"eval", "--checkpoint", paths.checkpoint(40).string()}, "the bytes of its tensors");
  damaged = checkpoint;
  damaged.replace(damaged.find("total_steps"), 5, "Total");
  std::ofstream(paths.checkpoint(40)) << damaged;
  expect_mistake(resume, "the bytes of its header are not those that were written");
  std::ofstream(paths.checkpoint(40)) << checkpoint;

  fs::rename(paths.checkpoint(40), paths.checkpoint(99));
  expect_mistake(resume, "step is 40; expected 99 as in the file's name");
  fs::rename(paths.checkpoint(99), paths.checkpoint(40));
  EXPECT_EQ(run(resume).code, 0);
}

TEST_F(Program, DamagedFilesOfARunAreNamed) {
  const fs::path out = folder_ / "run";
  const RunPaths paths{out};
  ASSERT_EQ(run(train_arguments(out)).code, 0);
  for (const char* result :
       {"{}", "[]", "{\"metric\": 5}", "{\"metric\": \"accuracy\", \"test\": \"x\"}", ""}) {
    std::ofstream(paths.result()) << result;
    expect_mistake({"train", "--resume", out.string()}, paths.result().string());
  }
  fs::remove(paths.result());
  std::ofstream(paths.metrics()) << R"({"step": 1, "seconds": "x", "final": "no"})"
                                 << "\n";
  EXPECT_EQ(run({"train", "--resume", out.string()}).code, 0) << "neither is needed";
}

TEST_F(Program, FoldersThatCannotBeAreOneLine) {
  fs::create_symlink("loop", folder_ / "loop");
  std::ofstream(folder_ / "file") << "in the way";
  const std::vector<std::pair<fs::path, std::string>> places{
      {folder_ / "loop", "Too many levels of symbolic links"},
      {folder_ / std::string(300, 'n'), "File name too long"},
      {"/proc/nowhere", "/proc/nowhere"},
      {folder_ / "file", "file"}};
  for (const auto& [place, message] : places) {
    expect_mistake(train_arguments(place), message);
    expect_mistake(train_arguments(place, {"--resume"}), message);
  }
  expect_mistake({"compare", (folder_ / "loop").string()}, "Too many levels of symbolic links");
  expect_mistake({"report", (folder_ / "loop").string(), "--html", (folder_ / "page").string()},
                 "Too many levels");
  expect_mistake({"train", "--recipe", recipe_.string(), "--data-dir", (folder_ / "loop").string()},
                 "Too many levels");
}

}  // namespace
}  // namespace lowtide
