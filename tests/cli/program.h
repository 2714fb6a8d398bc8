#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lowtide/train/run_folder.h"
#include "tests/io/scratch.h"
#include "tests/train/small_run.h"

namespace lowtide {

struct Finished {
  int code = 0;  // exit code, or 128 + signal
  std::string out, error;
};

// A run of the program in a process of its own, with its output in files. `prepare` is called in that process before
// the program takes its place.
class Process {
 public:
  Process(
      const std::filesystem::path& folder, const std::vector<std::string>& arguments,
      const std::function<void()>& prepare = [] {})
      : out_(folder / "stdout"), error_(folder / "stderr") {
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");  // kill(-1) would reach every process of the user
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // it does not outlive a test that is killed
    if (freopen(out_.c_str(), "w", stdout) == nullptr || freopen(error_.c_str(), "w", stderr) == nullptr)
      _exit(99);
    prepare();
    std::vector<char*> argv{const_cast<char*>(LOWTIDE_PROGRAM)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(99);
  }

  pid_t pid() const { return pid_; }
  void send(int number) const { kill(pid_, number); }

  Finished wait() {
    look(0);
    return {*code_, file_bytes(out_), file_bytes(error_)};
  }

  bool has_ended() {
    look(WNOHANG);
    return code_.has_value();
  }

 private:
  void look(int options) {
    int status = 0;
    if (!code_ && waitpid(pid_, &status, options) == pid_)
      code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  std::filesystem::path out_, error_;
  pid_t pid_;
  std::optional<int> code_;
};

// A folder with small data and a recipe that trains on it in a second.
class Program : public testing::Test {
 protected:
  Program() {
    write_small_dataset(folder_ / "data");
    std::ofstream(recipe_) << to_toml(small_recipe(folder_ / "data"));
  }

  Finished run(
      const std::vector<std::string>& arguments, const std::function<void()>& prepare = [] {}) {
    return Process(folder_.path(), arguments, prepare).wait();
  }

  std::vector<std::string> train_arguments(const std::filesystem::path& out,
                                           const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"train", "--recipe", recipe_.string(), "--out", out.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // The last checkpoint of an uninterrupted run with these further arguments.
  std::string uninterrupted(std::int64_t steps, const std::vector<std::string>& more) {
    const std::filesystem::path out = folder_ / "uninterrupted";
    const Finished finished = run(train_arguments(out, more));
    EXPECT_EQ(finished.code, 0) << finished.error;
    return file_bytes(RunPaths{out}.checkpoint(steps));
  }

  // A user's mistake: exit code 2, one line that says this.
  void expect_mistake(
      const std::vector<std::string>& arguments, const std::string& message,
      const std::function<void()>& prepare = [] {}) {
    const Finished finished = run(arguments, prepare);
    EXPECT_EQ(finished.code, 2) << finished.error;
    EXPECT_NE(finished.error.find(message), std::string::npos) << finished.error;
    EXPECT_EQ(std::count(finished.error.begin(), finished.error.end(), '\n'), 1) << finished.error;
  }

  const ScratchFolder folder_;
  const std::filesystem::path recipe_ = folder_ / "small.toml";
};

// Returns when the run has logged a line; throws where what trains it has ended before.
inline void wait_for_metrics(const RunPaths& run, const std::function<bool()>& has_ended) {
  while (!std::filesystem::exists(run.metrics()) || std::filesystem::file_size(run.metrics()) == 0) {
    if (has_ended()) throw std::runtime_error("it ended before it logged a line");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

inline void wait_for_metrics(const RunPaths& run, Process& process) {
  wait_for_metrics(run, [&] {
    const bool ended = process.has_ended();
    if (ended) ADD_FAILURE() << process.wait().error;
    return ended;
  });
}

}  // namespace lowtide
