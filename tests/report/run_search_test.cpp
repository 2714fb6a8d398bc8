#include "lowtide/report/run_search.h"

#include <gtest/gtest.h>

#include "lowtide/io/file.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class RunScans : public testing::Test {
 protected:
  void put(const std::string& name) {
    const fs::path path = scratch_ / name;
    fs::create_directories(path.parent_path());
    write_atomically(path, "{}");
  }

  std::vector<std::string> names(const FoundRuns& scan) const {
    std::vector<std::string> found;
    for (const fs::path& run : scan.runs) found.push_back(run_name(scratch_.path(), run));
    return found;
  }

  // "name: reason" of each.
  std::vector<std::string> skipped(const FoundRuns& scan) const {
    std::vector<std::string> found;
    for (const auto& [folder, reason] : scan.skipped)
      found.push_back(run_name(scratch_.path(), folder) + ": " + reason);
    return found;
  }

  const ScratchFolder scratch_;
};

TEST_F(RunScans, FindsRunsAtAnyDepthInOrder) {
  put("b/run.json");
  put("a/run.json");
  put("study/seed2/run.json");
  put("study/seed1/run.json");
  put("study/seed1/checkpoints/old/run.json");
  const FoundRuns scan = search_runs(scratch_.path());
  EXPECT_EQ(names(scan), (std::vector<std::string>{"a", "b", "study/seed1", "study/seed2"}));
  EXPECT_TRUE(scan.skipped.empty());
}

TEST_F(RunScans, ARunFolderIsItsOwnOnlyRun) {
  put("run.json");
  put("inner/run.json");
  const FoundRuns scan = search_runs(scratch_.path());
  ASSERT_EQ(scan.runs, std::vector<fs::path>{scratch_.path()});
  EXPECT_EQ(run_name(scratch_.path(), scan.runs[0]), scratch_.path().filename());
}

TEST_F(RunScans, WhatIsNotARunIsNamed) {
  put("good/run.json");
  put("half/metrics.jsonl");
  put("photos/2024/summer/beach.txt");
  put("notes.txt");
  fs::create_directories(scratch_ / "empty");
  const FoundRuns scan = search_runs(scratch_.path());
  EXPECT_EQ(names(scan), std::vector<std::string>{"good"});
  const std::vector<std::string> told = skipped(scan);
  ASSERT_EQ(told.size(), 3);
  EXPECT_TRUE(contains(told[0], "empty: not a run folder"));
  EXPECT_TRUE(contains(told[1], "half: half a run folder", "run.json is missing"));
  EXPECT_TRUE(contains(told[2], "photos: not a run folder")) << "the uppermost folder, and not those in it";
}

TEST_F(RunScans, WithoutAnyRunFoldersAreStillNamedOnce) {
  put("photos/beach.txt");
  fs::create_directory_symlink("/", scratch_ / "everything");
  const FoundRuns scan = search_runs(scratch_.path());
  EXPECT_TRUE(scan.runs.empty());
  EXPECT_EQ(scan.skipped.size(), 2);
}

TEST_F(RunScans, LinksAreNotFollowed) {
  const ScratchFolder outside;
  fs::create_directories(outside / "run");
  write_atomically(outside / "run" / "run.json", "{}");
  put("good/run.json");
  fs::create_directory_symlink(outside / "run", scratch_ / "link");
  fs::create_directory_symlink(scratch_.path(), scratch_ / "good/../loop");
  fs::create_symlink("nowhere", scratch_ / "broken");
  const FoundRuns scan = search_runs(scratch_.path());
  EXPECT_EQ(names(scan), std::vector<std::string>{"good"});
  const std::vector<std::string> told = skipped(scan);
  ASSERT_EQ(told.size(), 2);
  EXPECT_TRUE(contains(told[0], "link: a symbolic link"));
  EXPECT_TRUE(contains(told[1], "loop: a symbolic link"));
}

TEST_F(RunScans, TheRootMayBeALink) {
  put("runs/good/run.json");
  fs::create_directory_symlink(scratch_ / "runs", scratch_ / "latest");
  EXPECT_EQ(search_runs(scratch_ / "latest").runs, std::vector<fs::path>{scratch_ / "latest/good"});
}

TEST_F(RunScans, TheRootMustBeAFolder) {
  put("file");
  EXPECT_TRUE(
      contains(user_error([&] { search_runs(scratch_ / "file"); }), "file: not a folder; expected a run"));
  EXPECT_TRUE(contains(user_error([&] { search_runs(scratch_ / "nothing"); }),
                       "nothing: no such folder; expected a run"));
}

}  // namespace
}  // namespace lowtide
