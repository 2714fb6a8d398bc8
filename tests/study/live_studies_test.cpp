#include "lowtide/study/live_studies.h"

#include <gtest/gtest.h>

#include "lowtide/study/folder.h"
#include "tests/io/scratch.h"
#include "tests/study/fake_runs.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

void write_study(const fs::path& folder) {
  Study study;
  study.kind = Study::kSuite;
  study.schedules = {"CR"};
  study.seeds = 3;
  study.recipe.data.dir = "data";
  study.recipe.training.steps = 100;
  complete(study);
  const StudyFolder taken(folder, study);
}

TEST(LiveStudies, TellWhoTrainsWhatAndHowLongItTakes) {
  const ScratchFolder folder;
  write_study(folder / "tasks/suite");
  const fs::path suite = fs::canonical(folder / "tasks/suite");
  write_finished(suite / "CR-seed1", {.seconds = 50, .steps = 100});
  write_started(suite / "CR-seed2");
  write_json(suite / "CR-seed2/metrics.jsonl", {{"step", 40}, {"seconds", 20}});
  std::ofstream(suite / "CR-seed2/metrics.jsonl", std::ios::app) << "\n";
  const LeaseHolder holder{
      .boot = "another", .pid_namespace = "pid:[1]", .pid = 812, .host = "node7", .job = "4711_1"};
  std::ofstream(RunPaths{suite / "CR-seed2"}.lease()) << to_text(holder);
  const Json studies = LiveStudies(folder.path()).look();
  ASSERT_EQ(studies.size(), 1u);
  EXPECT_EQ(studies[0].at("name"), "tasks/suite");
  EXPECT_EQ(studies[0].at("path"), suite.string());
  EXPECT_EQ(studies[0].at("left"),
            (60 + 100) * 0.5);  // by what a step took in the one that is done, one at a time
  const Json& members = studies[0].at("members");
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].at("state"), "done");
  EXPECT_EQ(members[1].at("state"), "running");
  EXPECT_EQ(members[1].at("step"), 40);
  EXPECT_EQ(members[1].at("host"), "node7");
  EXPECT_EQ(members[1].at("note"), "process 812 on node7, job 4711_1");
  EXPECT_EQ(members[2].at("state"), "waiting");
  EXPECT_EQ(members[2].at("index"), 2);
}

TEST(LiveStudies, WhereNothingRunsNobodyKnowsHowLong) {
  const ScratchFolder folder;
  write_study(folder / "suite");
  const Json studies = LiveStudies(folder / "suite").look();  // the folder itself
  ASSERT_EQ(studies.size(), 1u);
  EXPECT_EQ(studies[0].at("name"), "suite");
  EXPECT_TRUE(studies[0].at("left").is_null());
}

TEST(LiveStudies, ReadOnlyWhatLiesInTheFolder) {
  const ScratchFolder folder, elsewhere;
  write_study(elsewhere / "suite");
  fs::create_directory_symlink(elsewhere / "suite", folder / "linked");
  EXPECT_TRUE(LiveStudies(folder.path()).look().empty());
  write_study(folder / "suite");
  std::ofstream(elsewhere / "secret") << "secret";
  fs::create_directories(folder / "suite/CR-seed1");
  for (const char* file : {"failed.txt", "member.lease"}) {
    const fs::path link = folder / "suite/CR-seed1" / file;
    fs::create_symlink(elsewhere / "secret", link);
    const Json studies = LiveStudies(folder.path()).look();
    ASSERT_EQ(studies.size(), 1u);
    EXPECT_TRUE(contains(studies[0].value("problem", ""), "symbolic links")) << file;
    EXPECT_FALSE(studies[0].contains("members"));
    fs::remove(link);
  }
}

TEST(LiveStudies, OneThatIsDamagedIsTold) {
  const ScratchFolder folder;
  write_study(folder / "a");
  write_study(folder / "b");
  std::ofstream(folder / "a/study.toml") << "kind = ";
  const Json studies = LiveStudies(folder.path()).look();
  ASSERT_EQ(studies.size(), 2u);
  EXPECT_TRUE(contains(studies[0].at("problem").get<std::string>(), "study.toml"));
  EXPECT_EQ(studies[1].at("members").size(), 3u);
}

}  // namespace
}  // namespace lowtide
