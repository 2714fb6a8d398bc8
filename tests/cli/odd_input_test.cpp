// Odd numbers and odd files, for every command: one line, exit code 2, and soon.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lowtide/recipe/recipe.h"
#include "tests/io/scratch.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class OddInput : public testing::Test {
 protected:
  OddInput() {
    write_small_dataset(folder_ / "data");
    std::ofstream(recipe_) << to_toml(small_recipe(folder_ / "data"));
    std::ofstream(folder_ / "deep.toml") << [] {
      std::string key;
      for (int i = 0; i < 100'000; ++i) key += "a.";
      return key + "a = 1\n";
    }();
    std::ofstream(folder_ / "binary").write("\x7f\x45LF\0\1\2\xff", 8);
    std::ofstream(folder_ / "empty");
    fs::create_symlink("loop", folder_ / "loop");
    EXPECT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  }

  // The exit code, or 128 + the signal that ended it: SIGALRM where it took minutes.
  int run(const Words& words) const {
    const pid_t child = fork();
    if (child == 0) {
      const int out = ::open("/dev/null", O_WRONLY),
                error = ::open(error_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(out, STDOUT_FILENO);
      dup2(error, STDERR_FILENO);
      std::vector<char*> argv{const_cast<char*>(LOWTIDE_PROGRAM)};
      for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      alarm(300);
      execv(argv[0], argv.data());
      _exit(99);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  void expect_mistake(const Words& words, const std::string& message) const {
    std::string line;
    for (const std::string& word : words) line += " " + word;
    SCOPED_TRACE(line);
    EXPECT_EQ(run(words), 2);
    const std::string error = file_bytes(error_);
    EXPECT_TRUE(contains(error, message));
    EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
    for (const char* ours : {"internal error", "std::", "c10::", "exception", ".cpp:"})
      EXPECT_EQ(error.find(ours), std::string::npos) << error;
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  const ScratchFolder folder_;
  const fs::path recipe_ = folder_ / "small.toml";
  const fs::path error_ = folder_ / "stderr";
};

TEST_F(OddInput, NumbersOfARecipe) {
  const struct {
    Words options;
    const char* message;
  } kOdd[] = {
      {{"--clip", "1e308"}, "clip is 1e+308"},
      {{"--lr", "nan"}, "lr is nan"},
      {{"--weight-decay=-inf"}, "weight-decay is -inf"},
      {{"--batch", "4294967297"}, "batch is 4294967297; expected 1 to"},
      {{"--batch", "9223372036854775808"}, "not a whole number"},
      {{"--steps", "9223372036854775807"}, "steps is 9223372036854775807"},
      {{"--steps", "1000000000000000", "--batch", "1000"}, "more than can be counted"},
      {{"--steps", "0", "--epochs", "1e30"}, "epochs is 1e+30"},
      {{"--threads=-1"}, "threads is -1"},
      {{"--loader-threads", "100000"}, "loader-threads is 100000"},
      {{"--image-size", "2147483647"}, "image-size is 2147483647"},
      {{"--cycles", "9223372036854775807"}, "cycles"},
  };
  for (const auto& [options, message] : kOdd) {
    Words words{"cost", "--recipe", recipe_.string()};
    words.insert(words.end(), options.begin(), options.end());
    expect_mistake(words, message);
  }
}

TEST_F(OddInput, NumbersOfOtherCommands) {
  const std::string recipe = recipe_.string();
  expect_mistake({"schedule", "CR", "--steps", "9223372036854775807"}, "expected 1 to 1000000000000000");
  expect_mistake({"schedule", "CR", "--steps", "1000000000000", "-n", "100000000000"}, "fewer cycles");
  expect_mistake({"advise", "--recipe", recipe, "--budget", "nan"}, "budget is nan");
  expect_mistake({"range-test", "--recipe", recipe, "--threshold", "nan"}, "threshold is nan");
  expect_mistake({"study", "suite", "--recipe", recipe, "--out", path("study"), "--seeds", "100000000000"},
                 "seeds is");
  expect_mistake({"bench", "step", "--engines", "fp32", "--batch", "100000000"}, "out of memory");
  expect_mistake({"bench", "step", "--engines", "fp32", "--batch", "9223372036854775807"}, "out of memory");
  expect_mistake({"bench", "step", "--threads", "100000"}, "threads is 100000; expected 0 to 1024");
  expect_mistake({"serve", path("data"), "--port", "65536"}, "--port");
}

// What a command writes takes the place of no file of a run.
TEST_F(OddInput, OutputsThatWouldReplaceARun) {
  const fs::path folder = folder_ / "run";
  fs::create_directories(folder / "checkpoints");
  const char* const kFiles[] = {"run.json", "metrics.jsonl", "result.json", "checkpoints/best.safetensors"};
  for (const char* name : kFiles) std::ofstream(folder / name) << "{}\n";
  for (const char* name : kFiles) {
    const std::string file = (folder / name).string();
    expect_mistake({"schedule", "CR", "--svg", file}, "is a file of a run; choose another name");
    expect_mistake({"report", folder.string(), "--html", file}, "is a file of a run; choose another name");
    expect_mistake({"export", "--checkpoint", file, "--out", file},
                   "is a file of a run; choose another name");
    expect_mistake({"study", "analyze", folder.string(), "--csv", file},
                   "is a file of a run; choose another name");
    expect_mistake({"range-test", "--recipe", recipe_.string(), "--apply", file},
                   "is a file of a run; choose another name");
    EXPECT_EQ(file_bytes(file), "{}\n");
  }
  const std::string copy = path("copy.safetensors");
  std::ofstream(copy) << "weights";
  expect_mistake({"export", "--checkpoint", copy, "--out", copy}, "is the checkpoint that is read");
  EXPECT_EQ(file_bytes(copy), "weights");
  EXPECT_EQ(run({"schedule", "CR", "--svg", (folder / "picture.svg").string()}), 0);
}

TEST_F(OddInput, OptionsThatContradictOrSayNothing) {
  const std::string recipe = recipe_.string();
  expect_mistake({"train", "--recipe", recipe, "--out", ""}, "--out is empty; expected a folder");
  expect_mistake({"train", "--recipe", ""}, "the name is empty");
  expect_mistake({"train", "--resume", path("a"), "--out", path("b")}, "name two folders; expected one");
  expect_mistake({"cost", "--recipe", recipe, "--steps", "8", "--epochs", "2"}, "both given; expected one");
  expect_mistake({"cost", "--recipe", recipe, "--batch", "8", "--batch", "9"}, "--batch is given twice");
  expect_mistake({"cost", "--recipe", recipe, "--resize", "3"}, "resize is 3, but the network sees");
  expect_mistake({"schedule", "matched budget=0.6", "--lr-delay=-1"}, "lr-delay is -1; expected 0 or more");
  expect_mistake({"bench", "step", "--repeat", "0"}, "--repeat: Value 0 not in range");
}

TEST_F(OddInput, FilesThatAreNoRecipe) {
  for (const std::string command : {"train", "cost"}) {
    expect_mistake({command, "--recipe", "/dev/zero"}, "more than 1048576 bytes");
    expect_mistake({command, "--recipe", "/proc/self/mem"}, "cannot be read");
    expect_mistake({command, "--recipe", path("pipe")}, "is a pipe");
    expect_mistake({command, "--recipe", path("deep.toml")}, "a key of more than 8 parts");
    expect_mistake({command, "--recipe", path("binary")}, "line 1");
  }
  expect_mistake({"study", "suite", "--study", path("pipe"), "--out", path("study")}, "is a pipe");
}

TEST_F(OddInput, FilesThatAreNoCheckpointImageOrRun) {
  for (const std::string file : {path("pipe"), std::string("/dev/zero"), path("empty"), path("binary"),
                                 path("loop"), path("data"), std::string(300, 'x')}) {
    expect_mistake({"eval", "--checkpoint", file}, file);
    expect_mistake({"compare", file}, file);
  }
  for (const std::string file : {path("pipe"), path("binary"), path("loop")}) {
    expect_mistake({"predict", "--checkpoint", file, file}, file);
    expect_mistake({"export", "--checkpoint", file, "--out", path("m.onnx")}, file);
    expect_mistake({"study", "landscape", "--checkpoint", file}, file);
    expect_mistake({"study", "status", file}, file);
    expect_mistake({"report", file, "--html", path("page.html")}, file);
    expect_mistake({"serve", file, "--port", "0"}, file);
    expect_mistake({"train", "--recipe", recipe_.string(), "--out", path("run"), "--data-dir", file}, file);
  }
}

}  // namespace
}  // namespace lowtide
