// The rooms' order, as docs/architecture.md has it: scripts/check-rooms.sh on this tree, and on made-up ones.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/io/scratch.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

struct Checked {
  int code = -1;
  std::string output;
};

Checked check_rooms(const fs::path& tree) {
  const std::string command =
      std::string("'" LOWTIDE_SOURCE_DIR "/scripts/check-rooms.sh' '") + tree.string() + "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  Checked result;
  std::array<char, 4096> buffer{};
  while (const std::size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
    result.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

TEST(Rooms, OfThisTreeAreInOrder) {
  const Checked checked = check_rooms(LOWTIDE_SOURCE_DIR);
  EXPECT_EQ(checked.code, 0) << checked.output;
}

// Three rooms and a program; the middle one may take one header from below.
class MadeUpRooms : public testing::Test {
 protected:
  MadeUpRooms() {
    write("docs/architecture.md",
          "| room | what lives there | needs torch |\n"
          "|---|---|---|\n"
          "| `lowtide/low/` | stones | no |\n"
          "| `lowtide/middle/` | walls | yes |\n"
          "| `lowtide/high/` | roofs | in part |\n"
          "| `cli/` | doors | yes |\n"
          "\n"
          "| room | may also include |\n"
          "|---|---|\n"
          "| `lowtide/middle/` | `lowtide/high/plan*.h` |\n");
    write("lowtide/low/stone.h", "#include <vector>\n");
    write("lowtide/high/deep/roof.cu",
          "#include \"lowtide/middle/wall.h\"\n#include \"lowtide/high/roof.h\"\n");
    write("lowtide/middle/wall.cpp", "#include <torch/torch.h>\n#include \"lowtide/high/plan_of_walls.h\"\n");
    write("cli/door.cpp", "#include \"lowtide/high/roof.h\"  // the highest\n#include \"cli/door.h\"\n");
  }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text;
  }

  void expect_refused(const std::string& file, const std::string& line, const std::string& message) const {
    write(file, "#pragma once\n" + line + "\n");
    const Checked checked = check_rooms(folder_.path());
    EXPECT_EQ(checked.code, 1);
    EXPECT_EQ(checked.output, file + ":2: " + message + "\n");
  }

  const ScratchFolder folder_;
};

TEST_F(MadeUpRooms, InOrder) {
  const Checked checked = check_rooms(folder_.path());
  EXPECT_EQ(checked.code, 0);
  EXPECT_EQ(checked.output, "7 includes of 4 rooms are in order\n");
}

TEST_F(MadeUpRooms, OneThatIncludesARoomBelowIt) {
  expect_refused("lowtide/low/stone.cpp", "#include \"lowtide/middle/wall.h\"",
                 "lowtide/low/ must not include lowtide/middle/wall.h: lowtide/middle/ is below it in "
                 "docs/architecture.md");
}

TEST_F(MadeUpRooms, OfARoomBelowOnlyWhatIsGranted) {
  expect_refused("lowtide/middle/wall.h", "#  include \"lowtide/high/roof.h\"",
                 "lowtide/middle/ must not include lowtide/high/roof.h: lowtide/high/ is below it in "
                 "docs/architecture.md");
}

TEST_F(MadeUpRooms, NoneIncludesTheProgram) {
  expect_refused("lowtide/high/roof.h", "#include \"cli/door.h\"",
                 "lowtide/high/ must not include cli/door.h: cli/ is below it in docs/architecture.md");
}

TEST_F(MadeUpRooms, OneWithoutTorch) {
  expect_refused("lowtide/low/tensor.h", "#include <ATen/ATen.h>",
                 "lowtide/low/ needs no torch by docs/architecture.md, and includes ATen/ATen.h");
}

TEST_F(MadeUpRooms, OneThatIsNotInTheTable) {
  expect_refused("lowtide/cellar/wine.h", "#include <vector>",
                 "its room, lowtide/cellar/, is not in the table of docs/architecture.md");
  fs::remove_all(folder_ / "lowtide/cellar");
  expect_refused("cli/door.h", "#include \"lowtide/cellar/wine.h\"",
                 "lowtide/cellar/wine.h is in no room of the table of docs/architecture.md");
}

TEST_F(MadeUpRooms, PathsAreWhole) {
  expect_refused("cli/door.h", "#include \"knob.h\"",
                 "\"knob.h\" is not a full path, such as \"lowtide/base/error.h\"");
}

TEST_F(MadeUpRooms, WithoutATableNothingIsInOrder) {
  write("docs/architecture.md", "# Architecture\n");
  const Checked checked = check_rooms(folder_.path());
  EXPECT_EQ(checked.code, 1);
  EXPECT_TRUE(contains(checked.output, "docs/architecture.md: no table of rooms"));
}

}  // namespace
}  // namespace lowtide
