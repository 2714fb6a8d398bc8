// What helps at the command line: help, suggestions, completion, manual pages, the line of progress.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lowtide/io/jsonl.h"
#include "lowtide/io/terminal.h"
#include "lowtide/recipe/recipe.h"
#include "lowtide/train/run_folder.h"
#include "tests/cli/shell.h"
#include "tests/io/scratch.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kProgram = LOWTIDE_PROGRAM;

Finished run_lowtide(const std::string& arguments) { return shell(kProgram + " " + arguments); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(ShellProgram, HelpIsThatOfTheCommand) {
  EXPECT_EQ(run_lowtide("help").text, run_lowtide("--help").text);
  for (const std::string command : {"train", "study", "study suite", "help"}) {
    const Finished help = run_lowtide("help " + command);
    EXPECT_EQ(help.code, 0) << help.text;
    EXPECT_EQ(help.text, run_lowtide(command + " --help").text) << command;
  }
  EXPECT_THAT(run_lowtide("help train").text, HasSubstr("--device cpu|cuda"));
}

TEST(ShellProgram, VersionSaysWhatItWasBuiltWith) {
  const Finished version = run_lowtide("--version");
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.text,
              testing::MatchesRegex("lowtide [0-9.]+ \\(git [0-9a-z]+\\)\nlibtorch [0-9a-z.+]+\n"
                                    "engines: simulated, integer \\(integer with [a-z0-9-]+\\)\n"
                                    "CUDA: .+\n"));
}

TEST(ShellProgram, SuggestsWhatWasMeant) {
  const ScratchFolder folder;
  std::ofstream(folder / "wrong.toml") << "stepz = 5\n";
  const std::vector<std::pair<std::string, std::string>> mistakes{
      {"trian", "unknown command 'trian' (did you mean 'train'?)"},
      {"help trian", "did you mean 'train'?"},
      {"man comprae", "did you mean 'compare'?"},
      {"study suit",
       "unknown command 'study suit' (did you mean 'suite'?); `lowtide study --help` lists them"},
      {"train --stpes 5", "unknown option '--stpes' (did you mean '--steps'?)"},
      {"train --step=5", "unknown option '--step' (did you mean '--steps'?)"},
      {"models --jsno", "did you mean '--json'?"},
      {"models verbose", "models: unexpected argument 'verbose'"},
      {"train --recipe " + (folder / "wrong.toml").string(), "unknown key 'stepz' (did you mean 'steps'?)"},
      {"train --recipe dmeo", "'dmeo' is neither a file nor the name of a recipe (did you mean 'demo'?)"},
      {"schedule RTX", "did you mean 'RTH' or 'RTV'?"},
      {"schedule 'CR 3:8 grda=8'", "did you mean 'grad'?"},
      {"cost --steps 5 --model resnet20", "unknown model 'resnet20' (did you mean 'cifar-resnet20'?)"},
      {"cost --steps 5 --engine integr", "did you mean 'integer'?"},
      {"cost --steps 5 --data cifar1O", "did you mean 'cifar10'?"},
      {"cost --steps 5 --optimizer adma", "optimizer is 'adma' (did you mean 'adam'?); expected one of sgd"},
      {"cost --steps 5 --lr-schedule cosin", "did you mean 'cosine'?"},
      {"eval --checkpoint x --split tets", "split is 'tets' (did you mean 'test'?)"},
      {"bench stpe", "benchmark is 'stpe' (did you mean 'step'?); expected one of step, layer"},
      {"completion bahs", "shell is 'bahs' (did you mean 'bash'?); expected one of bash, zsh, fish"},
  };
  for (const auto& [arguments, message] : mistakes) {
    const Finished finished = run_lowtide(arguments);
    EXPECT_EQ(finished.code, 2) << arguments << ": " << finished.text;
    EXPECT_THAT(finished.text, HasSubstr(message)) << arguments;
    EXPECT_EQ(lines_of(finished.text).size(), 1u) << finished.text;
  }
}

TEST(ShellProgram, RecipesHaveNames) {
  const Finished named = run_lowtide("cost --recipe demo");
  ASSERT_EQ(named.code, 0) << named.text;
  EXPECT_EQ(named.text, run_lowtide("cost --recipe " LOWTIDE_SOURCE_DIR "/recipes/demo.toml").text);
  const ScratchFolder folder;
  std::ofstream(folder / "demo") << "steps = 7\n";  // a file of that name is what is meant
  EXPECT_THAT(shell("cd " + folder.path().string() + "; " + kProgram + " cost --recipe demo").text,
              HasSubstr("7 steps"));
}

// What bash offers after these words, the last of which may be begun.
class BashCompletion : public testing::Test {
 protected:
  BashCompletion() {
    EXPECT_EQ(run_lowtide("completion bash > " + script_).text, "");
    fs::create_directories(folder_ / "folder");
    std::ofstream(folder_ / "file one.toml");
  }

  std::vector<std::string> offered(const std::string& words) const {
    const std::string query =
        "cd '" + folder_.path().string() + "' && bash --norc --noprofile -c '. \"$0\"; " +
        "COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _lowtide; " +
        "((${#COMPREPLY[@]} == 0)) || printf \"%s\\n\" \"${COMPREPLY[@]}\"' " + script_ + " lowtide " + words;
    return lines_of(shell(query).text);
  }

  const ScratchFolder folder_;
  const std::string script_ = (folder_ / "lowtide.bash").string();
};

TEST_F(BashCompletion, IsRegisteredWithoutAWord) {
  EXPECT_THAT(lines_of(shell("bash --norc --noprofile -c '. " + script_ + "; complete -p lowtide'").text),
              ElementsAre("complete -F _lowtide lowtide"));
}

TEST_F(BashCompletion, Commands) {
  EXPECT_THAT(offered("tra"), ElementsAre("train"));
  EXPECT_THAT(offered("''"), AllOf(Contains("eval"), Contains("study"), Contains("--version")));
  EXPECT_THAT(offered("study ''"), ElementsAre("suite", "budget", "critical", "landscape", "member", "status",
                                               "cancel", "analyze"));
  EXPECT_THAT(offered("help ra"), ElementsAre("range-test"));
  EXPECT_THAT(offered("completion ''"), ElementsAre("bash", "zsh", "fish"));
}

TEST_F(BashCompletion, Options) {
  EXPECT_THAT(offered("train --lr"), Contains("--lr-schedule"));
  EXPECT_THAT(offered("train --seed 1 --no-fl"), ElementsAre("--no-flip"));
  EXPECT_THAT(offered("study suite --se"), ElementsAre("--seeds", "--seed"));
  EXPECT_THAT(offered("models --"), AllOf(Contains("--json"), Not(Contains("--lr"))));
  EXPECT_THAT(offered("models --kind"), IsEmpty());
  EXPECT_THAT(offered("study suite --kind"), IsEmpty()) << "is in files alone";
}

TEST_F(BashCompletion, Values) {
  EXPECT_THAT(offered("train --device ''"), ElementsAre("cpu", "cuda"));
  EXPECT_THAT(offered("train --device = cu"), ElementsAre("cuda"));  // --device=cu, as bash has it
  EXPECT_THAT(offered("train --device ="), ElementsAre("cpu", "cuda"));
  EXPECT_THAT(offered("train --engine ''"), ElementsAre("auto", "simulated", "integer"));
  EXPECT_THAT(offered("train --model cifar-m"), ElementsAre("cifar-mobilenet-v2"));
  EXPECT_THAT(offered("train --data ti"), ElementsAre("tiny-imagenet"));
  EXPECT_THAT(offered("schedule RT"), ElementsAre("RTH", "RTV"));
  EXPECT_THAT(offered("train --steps ''"), IsEmpty());
  EXPECT_THAT(offered("train --flip --grad-r"), ElementsAre("--grad-rounding")) << "a flag has no value";
}

TEST_F(BashCompletion, Files) {
  EXPECT_THAT(offered("train --recipe fi"), ElementsAre("file one.toml"));
  EXPECT_THAT(offered("train --recipe cora"), ElementsAre("cora-gcn"));
  EXPECT_THAT(offered("train --data-dir ''"), ElementsAre("folder"));
  EXPECT_THAT(offered("compare ''"), ElementsAre("folder"));
  EXPECT_THAT(offered("study landscape --grid 3 --checkpoint folder fo"), ElementsAre("folder"))
      << "of several values the second";
}

TEST(ZshCompletion, CommandsOptionsValues) {
  if (!is_installed("zsh")) GTEST_SKIP() << "zsh is not installed";
  const ScratchFolder folder;
  ASSERT_EQ(run_lowtide("completion zsh > " + (folder / "_lowtide").string()).text, "");
  const auto offered = [&](const std::string& line) {
    return lines_of(shell("cd " + folder.path().string() +
                          "; zsh -f " LOWTIDE_SOURCE_DIR "/tests/cli/capture.zsh " + folder.path().string() +
                          " '" + line + "'")
                        .text);
  };
  EXPECT_THAT(offered("lowtide tra"), ElementsAre("train"));
  EXPECT_THAT(offered("lowtide study su"), ElementsAre("suite"));
  EXPECT_THAT(offered("lowtide train --device "), ElementsAre("cpu", "cuda"));
  EXPECT_THAT(offered("lowtide train --seed 1 --lr-sch"), Contains(HasSubstr("--lr-schedule")));
  EXPECT_THAT(offered("lowtide study suite --see"), Contains(HasSubstr("--seeds")));
  EXPECT_THAT(offered("lowtide train --recipe cora"), Contains("cora-gcn"));
  EXPECT_THAT(offered("lowtide completion "), ElementsAre("bash", "zsh", "fish"));
}

TEST(FishCompletion, CommandsOptionsValues) {
  if (!is_installed("fish")) GTEST_SKIP() << "fish is not installed";
  const ScratchFolder folder;
  const std::string script = (folder / "lowtide.fish").string();
  ASSERT_EQ(run_lowtide("completion fish > " + script).text, "");
  fs::create_directories(folder / "folder");
  const auto offered = [&](const std::string& line) {
    std::vector<std::string> words;
    const std::string query = "HOME=" + folder.path().string() + " fish --no-config -c 'source " + script +
                              "; complete -C \"" + line + "\"'";
    for (const std::string& text : lines_of(shell("cd " + folder.path().string() + "; " + query).text))
      words.push_back(text.substr(0, text.find('\t')));
    return words;
  };
  EXPECT_THAT(offered("lowtide tra"), ElementsAre("train"));
  EXPECT_THAT(offered("lowtide study su"), ElementsAre("suite"));
  EXPECT_THAT(offered("lowtide train --device "), ElementsAre("cpu", "cuda"));
  EXPECT_THAT(offered("lowtide train --device=cu"), ElementsAre("--device=cuda"));
  EXPECT_THAT(offered("lowtide train --lr-sch"), ElementsAre("--lr-schedule"));
  EXPECT_THAT(offered("lowtide study suite --see"), ElementsAre("--seed", "--seeds"));
  EXPECT_THAT(offered("lowtide study landscape --split tr"), ElementsAre("train"));
  EXPECT_THAT(offered("lowtide train --recipe cora"), ElementsAre("cora-gcn"));
  EXPECT_THAT(offered("lowtide train --data-dir fo"), ElementsAre("folder/"));
}

TEST(ManPages, EveryCommandHasOneThatGroffTakes) {
  if (!is_installed("groff")) GTEST_SKIP() << "groff is not installed";
  const ScratchFolder folder;
  ASSERT_EQ(run_lowtide("man --out " + folder.path().string()).text, "");
  for (const std::string& line : lines_of(run_lowtide("--help").text)) {
    if (!line.starts_with("  ")) continue;
    const std::string page = "lowtide-" + line.substr(2, line.find(' ', 2) - 2) + ".1";
    EXPECT_TRUE(fs::exists(folder / page)) << page;
  }
  EXPECT_TRUE(fs::exists(folder / "lowtide-study-suite.1"));
  for (const auto& page : fs::directory_iterator(folder.path())) {
    const Finished checked = shell("groff -man -ww -z -Tutf8 " + page.path().string());
    EXPECT_EQ(checked.code, 0);
    EXPECT_EQ(checked.text, "") << page.path();
  }
  const std::string page = shell("groff -man -Tascii -P-cbou " + (folder / "lowtide-train.1").string()).text;
  EXPECT_THAT(page, AllOf(HasSubstr("lowtide-train - train on a schedule"), HasSubstr("--device cpu|cuda"),
                          HasSubstr("--flip, --no-flip"), HasSubstr("cifar-resnet20")));
  EXPECT_EQ(run_lowtide("man train").text, file_bytes(folder / "lowtide-train.1"));
  EXPECT_EQ(run_lowtide("man").text, file_bytes(folder / "lowtide.1"));
}

class ProgressProgram : public testing::Test {
 protected:
  ProgressProgram() {
    write_small_dataset(folder_ / "data");
    Recipe recipe = small_recipe(folder_ / "data");
    recipe.running.log_every = 1;
    std::ofstream(folder_ / "small.toml") << to_toml(recipe);
  }

  const ScratchFolder folder_;
  const fs::path out_ = folder_ / "run";
  const std::string command_ =
      kProgram + " train --recipe " + (folder_ / "small.toml").string() + " --out " + out_.string();
};

// Forty steps take nowhere near the six minutes that forty lines would.
TEST_F(ProgressProgram, MetricsComeByStepsLinesByTime) {
  const Finished finished = shell(command_);
  ASSERT_EQ(finished.code, 0) << finished.text;
  int shown = 0;
  for (const std::string& line : lines_of(finished.text)) shown += line.find("images/s") != std::string::npos;
  EXPECT_GE(shown, 1);
  EXPECT_LT(shown, 40);
  EXPECT_THAT(finished.text, HasSubstr("step 40/40"));
  int logged = 0;
  for (const Json& line : read_jsonl(RunPaths{out_}.metrics()).lines) logged += line.contains("lr");
  EXPECT_EQ(logged, 40);
}

TEST_F(ProgressProgram, NeverWiderThanTheTerminal) {
  constexpr int kColumns = 40;
  winsize size{.ws_row = 24, .ws_col = kColumns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child < 0) GTEST_SKIP() << "no pseudo-terminal here";
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command_.c_str(), nullptr);
    _exit(99);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(terminal, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0) << text;
  int drawn = 0;
  for (std::size_t at = 0; (at = text.find("\x1b[K", at)) != std::string::npos; ++at, ++drawn) {
    const std::size_t begin = text.rfind('\r', at) + 1;
    const std::string line = text.substr(begin, at - begin);
    EXPECT_EQ(cut_to_columns(line, kColumns - 1), line);
    EXPECT_TRUE(line.starts_with("step ")) << "the bar makes room for the figures: " << line;
  }
  EXPECT_GE(drawn, 2) << "at the first step and at the last: " << text;
}

}  // namespace
}  // namespace lowtide
