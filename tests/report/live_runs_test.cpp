#include "lowtide/report/live_runs.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "lowtide/io/file.h"
#include "lowtide/io/gzip.h"
#include "lowtide/io/safetensors.h"
#include "lowtide/train/run_folder.h"
#include "tests/io/scratch.h"
#include "tests/report/made_up_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// It looks at the folder four times a second.
void wait_for_the_next_look() { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }

Json header_of(const std::optional<std::string>& lines) {
  if (!lines) return {};
  const std::vector<std::byte> plain = decompress_gzip(bytes_of(*lines), "lines", std::size_t{1} << 24);
  return Json::parse(text_of(plain).substr(0, text_of(plain).find('\n')));
}

class LiveRunsTest : public testing::Test {
 protected:
  LiveRunsTest() {
    write_run(scratch_ / "done", {});
    write_run(scratch_ / "going", {.seed = 2, .finished = false, .stopped_at = 100});
  }

  void append(const std::string& text) { std::ofstream(going_.metrics(), std::ios::app) << text; }

  static Json run_named(const Json& changes, const std::string& name) {
    for (const Json& run : changes.at("runs")) {
      if (run.at("name") == name) return run;
    }
    return {};
  }

  const ScratchFolder scratch_;
  const RunPaths going_{scratch_ / "going"};
};

TEST_F(LiveRunsTest, FirstEverythingThenWhatChanged) {
  LiveRuns runs(scratch_.path());
  const Json first = runs.changes(0);
  EXPECT_EQ(first.at("runs").size(), 2);
  EXPECT_EQ(first.at("ids").size(), 2);
  EXPECT_EQ(run_named(first, "going").at("last").at("step"), 100);
  EXPECT_TRUE(first.at("schedules").contains("CR 3:8 n=8 grad=8|200"));
  wait_for_the_next_look();
  const Json second = runs.changes(first.at("revision"));
  EXPECT_TRUE(second.at("runs").empty());
  EXPECT_EQ(second.at("ids"), first.at("ids"));
  append("{\"step\":110,\"loss\":0.5,\"relative_cost\":0.03}\n");
  wait_for_the_next_look();
  const Json third = runs.changes(second.at("revision"));
  ASSERT_EQ(third.at("runs").size(), 1);
  const Json going = run_named(third, "going");
  EXPECT_EQ(going.at("last").at("step"), 110);
  EXPECT_EQ(going.at("lines"), 11);
  EXPECT_EQ(going.at("id"), run_named(first, "going").at("id"));
}

TEST_F(LiveRunsTest, LinesAreGivenFromWhereTheAskerIs) {
  LiveRuns runs(scratch_.path());
  const Json going = run_named(runs.changes(0), "going");
  const std::uint64_t id = going.at("id");
  const Json all = header_of(runs.lines(id, 0, 0));
  EXPECT_EQ(all.at("tables").at(0).at("rows"), 10);
  EXPECT_EQ(all.at("generation"), going.at("generation"));
  EXPECT_EQ(all.at("end"), fs::file_size(going_.metrics()));
  append("{\"step\":110,\"loss\":0.5}\n{\"step\":120,\"lo");
  const Json added = header_of(runs.lines(id, all.at("generation"), all.at("end")));
  EXPECT_EQ(added.at("from"), all.at("end"));
  EXPECT_EQ(added.at("tables").at(0).at("rows"), 1);
  append("ss\":0.4}\n");
  const Json rest = header_of(runs.lines(id, added.at("generation"), added.at("end")));
  EXPECT_EQ(rest.at("tables").at(0).at("rows"), 1);
  EXPECT_EQ(runs.lines(9999, 0, 0), std::nullopt);
}

TEST_F(LiveRunsTest, LooksAtLayersAreCountedAndAreNoLinesOfTraining) {
  LiveRuns runs(scratch_.path());
  EXPECT_EQ(run_named(runs.changes(0), "going").at("looks"), 0);
  append("{\"step\":110,\"split\":\"layers\",\"conv1.clipped\":0.5}\n");
  wait_for_the_next_look();
  const Json once = run_named(runs.changes(0), "going");
  EXPECT_EQ(once.at("looks"), 1);
  EXPECT_EQ(once.at("lines"), 10);
  EXPECT_EQ(once.at("last").at("step"), 100);
  append("{\"step\":120,\"loss\":1}\n{\"step\":120,\"split\":\"layers\",\"conv1.clipped\":0.5}\n");
  wait_for_the_next_look();
  const Json twice = run_named(runs.changes(0), "going");
  EXPECT_EQ(twice.at("looks"), 2);
  EXPECT_EQ(twice.at("lines"), 11);
}

TEST_F(LiveRunsTest, AResumeThatDropsLinesStartsANewGeneration) {
  LiveRuns runs(scratch_.path());
  const Json before = run_named(runs.changes(0), "going");
  { const RunFolder resumed = RunFolder::resume(going_.folder, 50); }
  append("{\"step\":60,\"loss\":0.5}\n");
  wait_for_the_next_look();
  const Json after = run_named(runs.changes(0), "going");
  EXPECT_GT(after.at("generation"), before.at("generation"));
  EXPECT_EQ(after.at("lines"), 6);
  const Json lines = header_of(runs.lines(after.at("id"), before.at("generation"), before.at("end")));
  EXPECT_EQ(lines.at("from"), 0) << "what the asker has is no longer there";
  EXPECT_EQ(lines.at("tables").at(0).at("rows"), 6);
}

TEST_F(LiveRunsTest, RunsComeFinishAndGo) {
  LiveRuns runs(scratch_.path());
  const Json first = runs.changes(0);
  write_run(scratch_ / "new", {.seed = 3});
  write_run(going_.folder, {.seed = 2});
  fs::remove_all(scratch_ / "done");
  wait_for_the_next_look();
  const Json second = runs.changes(first.at("revision"));
  EXPECT_EQ(second.at("ids").size(), 2);
  EXPECT_FALSE(run_named(second, "new").is_null());
  EXPECT_FALSE(run_named(second, "going").at("result").is_null());
}

TEST_F(LiveRunsTest, DamageIsToldAndMended) {
  LiveRuns runs(scratch_.path());
  const Json first = runs.changes(0);
  const std::string good = read_text_file(going_.metrics());
  append("nonsense\n");
  wait_for_the_next_look();
  const Json damaged = runs.changes(first.at("revision"));
  ASSERT_EQ(damaged.at("skipped").size(), 1);
  EXPECT_TRUE(contains(damaged.at("skipped").at(0).at("path"), "going"));
  EXPECT_TRUE(contains(damaged.at("skipped").at(0).at("reason"), "metrics.jsonl:13:", "not a JSON object"))
      << "ten lines of training and two evaluations come before it";
  EXPECT_EQ(damaged.at("ids").size(), 1);
  write_atomically(going_.metrics(), good);
  wait_for_the_next_look();
  const Json mended = runs.changes(damaged.at("revision"));
  EXPECT_TRUE(mended.at("skipped").empty());
  EXPECT_EQ(run_named(mended, "going").at("lines"), 10);
}

TEST_F(LiveRunsTest, ARunReplacedByALinkIsNotRead) {
  const ScratchFolder outside;
  write_run(outside / "secret", {.seed = 7});
  LiveRuns runs(scratch_.path());
  const std::uint64_t id = run_named(runs.changes(0), "going").at("id");
  // Between two looks: the path is known, and leads out of the folder now.
  fs::remove_all(going_.folder);
  fs::create_directory_symlink(outside / "secret", going_.folder);
  EXPECT_EQ(runs.lines(id, 0, 0), std::nullopt);
  fs::remove(going_.folder);
  fs::create_directories(going_.folder);
  fs::create_symlink(outside / "secret" / "metrics.jsonl", going_.metrics());
  EXPECT_EQ(runs.lines(id, 0, 0), std::nullopt);
}

TEST_F(LiveRunsTest, TheFolderItselfMayGo) {
  LiveRuns runs(scratch_ / "done");
  EXPECT_EQ(runs.changes(0).at("runs").size(), 1);
  fs::remove_all(scratch_ / "done");
  wait_for_the_next_look();
  const Json gone = runs.changes(0);
  EXPECT_TRUE(gone.at("ids").empty());
  EXPECT_EQ(gone.at("skipped").size(), 1);
}

// Whatever one folder holds, the others are shown.
TEST_F(LiveRunsTest, OneBadFolderHidesNoOther) {
  const auto bad = [&](const std::string& name) {
    write_run(scratch_ / name, {.seed = 3});
    return RunPaths{scratch_ / name};
  };
  const std::string deep(200'000, '[');
  write_atomically(bad("deep run").run(), deep);
  write_atomically(bad("deep result").result(), "{\"a\":" + deep);
  write_atomically(bad("deep metrics").metrics(), "{\"step\":1,\"a\":" + deep + "}\n");
  fs::remove(bad("pipe").run());
  ASSERT_EQ(::mkfifo((scratch_ / "pipe/run.json").c_str(), 0600), 0);
  fs::resize_file(bad("sparse run").run(), std::uintmax_t{1} << 40);
  fs::resize_file(bad("sparse metrics").metrics(), std::uintmax_t{1} << 40);
  fs::remove(bad("loop").run());
  fs::create_symlink("run.json", scratch_ / "loop/run.json");
  write_atomically(bad("wrong types").run(), R"({"format":1,"recipe":[],"schedule":7,"seed":{}})");
  LiveRuns runs(scratch_.path());
  const Json changes = runs.changes(0);
  EXPECT_EQ(changes.at("ids").size(), 2) << changes.at("skipped").dump(1);
  EXPECT_EQ(changes.at("skipped").size(), 8);
  for (const Json& skipped : changes.at("skipped")) {
    const std::string reason = skipped.at("reason");
    EXPECT_EQ(reason.find("exception"), std::string::npos) << reason;
    EXPECT_EQ(reason.find("std::"), std::string::npos) << reason;
  }
}

// Parts of a run that can be left out are, and say why.
TEST_F(LiveRunsTest, WhatCannotBeIsLeftOutOfARun) {
  const RunPaths paths{scratch_ / "done"};
  Json result = read_run_file(paths.result());
  result["steps"] = std::int64_t{9223372036854775807};
  write_atomically(paths.result(), result.dump());
  write_safetensors(paths.checkpoint(200), {}, {{"lowtide", "{\"ledger\":" + std::string(200'000, '[')}});
  LiveRuns runs(scratch_.path());
  const Json changes = runs.changes(0);
  EXPECT_TRUE(changes.at("schedules").at("CR 3:8 n=8 grad=8|9223372036854775807").is_null());
  EXPECT_TRUE(contains(run_named(changes, "done").at("layers_missing"), "nested more than 64 levels"));
}

TEST_F(LiveRunsTest, CheckpointsElsewhereAreNotRead) {
  const RunPaths paths{scratch_ / "done"};
  const ScratchFolder elsewhere;
  fs::rename(paths.checkpoints(), elsewhere / "checkpoints");
  fs::create_directory_symlink(elsewhere / "checkpoints", paths.checkpoints());
  LiveRuns runs(scratch_.path());
  const Json done = run_named(runs.changes(0), "done");
  EXPECT_FALSE(done.contains("layers"));
  EXPECT_TRUE(contains(done.at("layers_missing"), "checkpoints is a symbolic link, which is not followed"));
}

}  // namespace
}  // namespace lowtide
