#include "lowtide/study/child.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lowtide/io/file.h"
#include "tests/io/scratch.h"
#include "tests/study/fake_trainer.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

int wait_for(Child& child) {
  std::optional<int> code;
  EXPECT_TRUE(comes_true([&] { return (code = child.ended()).has_value(); }));
  return code.value_or(-1);
}

std::vector<std::string> shell(const std::string& script) { return {"-c", script}; }

TEST(Child, ItsOutputIsAddedToTheLog) {
  const ScratchFolder folder;
  std::ofstream(folder / "log") << "before\n";
  Child child("/bin/sh", shell("echo out; echo error >&2; exit 3"), folder / "log");
  EXPECT_EQ(wait_for(child), 3);
  EXPECT_EQ(read_text_file(folder / "log"), "before\nout\nerror\n");
}

TEST(Child, ASignalThatEndsItIsToldAsShellsDo) {
  const ScratchFolder folder;
  Child child("/bin/sh", shell("while true; do sleep 0.02; done"), folder / "log");
  child.send(SIGTERM);  // at once: it must not be lost between fork and exec
  EXPECT_EQ(wait_for(child), 128 + SIGTERM);
  EXPECT_EQ(child.killed_by(), SIGTERM);
  Child polite("/bin/sh", shell("exit 143"), folder / "log");  // as one that saves first
  EXPECT_EQ(wait_for(polite), 128 + SIGTERM);
  EXPECT_EQ(polite.killed_by(), 0);
}

TEST(Child, AProgramThatCannotBeStartedSaysSoInTheLog) {
  const ScratchFolder folder;
  Child child("/nowhere/lowtide", {}, folder / "log");
  EXPECT_EQ(wait_for(child), 127);
  EXPECT_EQ(read_text_file(folder / "log"), "cannot start /nowhere/lowtide: No such file or directory\n");
}

TEST(Child, IsInAGroupOfItsOwn) {
  const ScratchFolder folder;
  Child child("/bin/sh", shell("cut -d' ' -f5 /proc/$$/stat; echo $$"), folder / "log");
  EXPECT_EQ(wait_for(child), 0);
  const std::string log = read_text_file(folder / "log");
  const auto line_end = log.find('\n');
  EXPECT_EQ(log.substr(0, line_end + 1), log.substr(line_end + 1)) << log;
}

TEST(Child, IsToldToEndWhenItsParentDies) {
  const ScratchFolder folder;
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    const Child child("/bin/sh",
                      shell("trap 'echo told; exit' USR1; echo ready; while true; do sleep 0.02; done"),
                      folder / "log");
    comes_true([&] { return read_text_file(folder / "log") == "ready\n"; });
    _exit(0);  // no destructor: as if it had been killed
  }
  waitpid(parent, nullptr, 0);
  EXPECT_TRUE(comes_true([&] { return read_text_file(folder / "log") == "ready\ntold\n"; }));
}

}  // namespace
}  // namespace lowtide
