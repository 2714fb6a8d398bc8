#include "lowtide/train/run_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include "tests/io/event_decoder.h"
#include "tests/io/scratch.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

TrainingLine line(std::int64_t step, double loss) { return {.step = step, .loss = loss}; }

class RunFolders : public testing::Test {
 protected:
  std::vector<std::int64_t> logged_steps() const {
    std::vector<std::int64_t> steps;
    for (const Json& line : read_jsonl(paths_.metrics()).lines) steps.push_back(line.at("step"));
    return steps;
  }

  // A run of five lines that nobody writes to any more.
  void make_finished_run() {
    RunFolder run = RunFolder::create(paths_.folder, kRun);
    for (const int step : {10, 20, 30, 40, 50}) run.log(line(step, 1.0 / step));
  }

  void make_checkpoint(const std::string& name) { write_atomically(paths_.checkpoints() / name, "x"); }

  const Json kRun{{"format", 1}, {"recipe", {{"lr", 0.1}}}};
  const ScratchFolder scratch_;
  const RunPaths paths_{scratch_ / "runs" / "one"};
};

TEST_F(RunFolders, CreateWritesRunJsonAndOpensTheRest) {
  RunFolder run = RunFolder::create(paths_.folder, kRun);
  EXPECT_EQ(run.paths().folder, paths_.folder);
  EXPECT_EQ(read_run_file(paths_.run()), kRun);
  EXPECT_TRUE(fs::is_directory(paths_.checkpoints()));
  const EvaluationLine evaluation{.step = 1, .split = Split::kTest, .metric_name = "accuracy", .metric = 0.5};
  run.log(line(1, 0.5));
  run.log(evaluation);
  EXPECT_EQ(read_jsonl(paths_.metrics()).lines,
            (std::vector<Json>{to_json(line(1, 0.5)), to_json(evaluation)}));
  const RunResult result{.metric = "accuracy", .test = {.metric = 0.9}};
  run.write_result(result);
  EXPECT_EQ(read_run_file(paths_.result()), to_json(result));
}

TEST_F(RunFolders, WhatLinesTellOfLayersGoesToTensorBoard) {
  {
    RunFolder run = RunFolder::create(paths_.folder, kRun);
    LayerFigures figures{.layer = "group1.0.conv1", .bits = 5};
    figures.sensitivity = 0.25;
    run.log(LayersLine{.step = 40, .layers = {figures}, .took = 0.5});
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(paths_.folder)) {
    if (entry.path().filename().string().starts_with("events.")) files.push_back(entry.path());
  }
  ASSERT_EQ(files.size(), 1u);
  std::map<std::string, float> scalars;
  for (const Event& event : read_events(files[0])) {
    if (!event.tag) continue;
    EXPECT_EQ(event.step, 40);
    scalars[*event.tag] = *event.value;
  }
  EXPECT_EQ(scalars.at("layers/group1.0.conv1.bits"), 5);
  EXPECT_EQ(scalars.at("layers/group1.0.conv1.sensitivity"), 0.25F);
}

TEST_F(RunFolders, CreateRefusesAFolderThatHoldsARun) {
  make_finished_run();
  const std::string message = user_error([&] { RunFolder::create(paths_.folder, kRun); });
  EXPECT_TRUE(contains(message, paths_.folder.string(), "holds a run already", "--resume", "--out"));
  EXPECT_EQ(logged_steps().size(), 5) << "the run that is there stays";
}

// While this one waits for the lease, who has it begins the run.
TEST_F(RunFolders, CreateLooksAgainWhenItHasTheLease) {
  fs::create_directories(paths_.folder);
  std::ofstream(paths_.lease()) << to_text(
      {.boot = "another", .pid_namespace = "pid:[1]", .pid = 7, .host = "node7"});
  const std::jthread holder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::ofstream(paths_.metrics()) << to_json(line(1, 0.5)).dump() << "\n";
    fs::remove(paths_.lease());
  });
  EXPECT_TRUE(contains(user_error([&] { RunFolder::create(paths_.folder, kRun); }), "holds a run already"));
  EXPECT_EQ(logged_steps(), std::vector<std::int64_t>{1});
  EXPECT_FALSE(fs::exists(paths_.lease()));
}

TEST_F(RunFolders, CreateTakesThePlaceOfAStartThatFailed) {
  { const RunFolder failed = RunFolder::create(paths_.folder, {{"format", 1}, {"recipe", {{"lr", 1e30}}}}); }
  EXPECT_FALSE(has_begun(paths_));
  { RunFolder::create(paths_.folder, kRun).log(line(1, 0.5)); }
  EXPECT_EQ(read_run_file(paths_.run()), kRun);
  EXPECT_TRUE(has_begun(paths_));
  EXPECT_TRUE(contains(user_error([&] { RunFolder::create(paths_.folder, kRun); }), "holds a run already"));
}

TEST_F(RunFolders, WhatARunLeftIsNotMixedWithANewOne) {
  make_finished_run();
  fs::remove(paths_.metrics());
  EXPECT_FALSE(has_begun(paths_));
  make_checkpoint(paths_.checkpoint(90).filename());
  EXPECT_TRUE(contains(user_error([&] { RunFolder::create(paths_.folder, kRun); }), "holds a run already"));
  fs::remove(paths_.run());
  EXPECT_TRUE(contains(user_error([&] { RunFolder::create(paths_.folder, kRun); }), "lacks its run.json"));
}

TEST_F(RunFolders, CreateTellsOfAFolderThatCannotBe) {
  write_atomically(scratch_ / "file", "in the way");
  EXPECT_TRUE(contains(user_error([&] { RunFolder::create(scratch_ / "file" / "run", kRun); }),
                       "cannot make the folder", "file"));
}

TEST_F(RunFolders, ResumeDropsWhatWasLoggedLater) {
  make_finished_run();
  {
    RunFolder run = RunFolder::resume(paths_.folder, 30);
    EXPECT_EQ(logged_steps(), (std::vector<std::int64_t>{10, 20, 30}));
    run.log(line(40, 7));
  }
  EXPECT_EQ(logged_steps(), (std::vector<std::int64_t>{10, 20, 30, 40}));
  EXPECT_EQ(read_jsonl(paths_.metrics()).lines.back().at("loss"), 7);
  EXPECT_EQ(read_run_file(paths_.run()), kRun) << "run.json is of the first start";
}

TEST_F(RunFolders, ResumeCutsAnUnfinishedLine) {
  make_finished_run();
  {
    const FileDescriptor file = open_for_writing(paths_.metrics(), O_APPEND);
    write_all(file, bytes_of("{\"step\": 60, \"lo"), paths_.metrics());
  }
  RunFolder run = RunFolder::resume(paths_.folder, 50);
  run.log(line(60, 1));
  EXPECT_EQ(logged_steps(), (std::vector<std::int64_t>{10, 20, 30, 40, 50, 60}));
}

TEST_F(RunFolders, ResumeTellsOfDamagedMetrics) {
  for (const char* line : {"not JSON\n", "[1]\n", "{\"step\": \"ten\"}\n", "{\"step\": null}\n"}) {
    SCOPED_TRACE(line);
    fs::create_directories(paths_.folder);
    write_atomically(paths_.metrics(), line);
    EXPECT_TRUE(
        contains(user_error([&] { RunFolder::resume(paths_.folder, 1); }), paths_.metrics().string()));
  }
}

TEST_F(RunFolders, ASecondWriterIsRefused) {
  {
    const RunFolder first = RunFolder::create(paths_.folder, kRun);
    const std::string message = user_error([&] { RunFolder::resume(paths_.folder, 0); });
    EXPECT_TRUE(contains(message, paths_.folder.string(), "another process is writing this run"));
  }
  EXPECT_NO_THROW(RunFolder::resume(paths_.folder, 0)) << "the lock ends with its holder";
}

TEST_F(RunFolders, ARefusedWriterLeavesTheMetricsAlone) {
  RunFolder first = RunFolder::create(paths_.folder, kRun);
  first.log(line(10, 1));
  EXPECT_THROW(RunFolder::resume(paths_.folder, 0), UserError);
  EXPECT_EQ(logged_steps(), (std::vector<std::int64_t>{10}));
}

TEST_F(RunFolders, KeepsTheLastCheckpoints) {
  const RunFolder run = RunFolder::create(paths_.folder, kRun);
  EXPECT_TRUE(checkpoint_steps(paths_).empty());
  for (const std::int64_t step : {100, 9, 20000, 3000}) make_checkpoint(paths_.checkpoint(step).filename());
  for (const char* other : {"averaged.safetensors", "step-.safetensors", "step-12x.safetensors", "notes.txt"})
    make_checkpoint(other);
  EXPECT_EQ(checkpoint_steps(paths_), (std::vector<std::int64_t>{9, 100, 3000, 20000}));
  run.keep_last_checkpoints(4);
  EXPECT_EQ(checkpoint_steps(paths_).size(), 4);
  run.keep_last_checkpoints(2);
  EXPECT_EQ(checkpoint_steps(paths_), (std::vector<std::int64_t>{3000, 20000}));
  EXPECT_TRUE(fs::exists(paths_.averaged())) << "what is no checkpoint of a step is left alone";
  EXPECT_TRUE(fs::exists(paths_.checkpoints() / "notes.txt"));
  run.keep_last_checkpoints(1);
  EXPECT_EQ(checkpoint_steps(paths_), (std::vector<std::int64_t>{20000}));
}

TEST_F(RunFolders, ACheckpointThatCannotBeRemovedIsTold) {
  const RunFolder run = RunFolder::create(paths_.folder, kRun);
  fs::create_directory(paths_.checkpoint(1));
  make_checkpoint(paths_.checkpoint(2).filename());
  EXPECT_TRUE(contains(user_error([&] { run.keep_last_checkpoints(1); }), "cannot remove",
                       paths_.checkpoint(1).string()));
}

TEST_F(RunFolders, CheckpointsThatCannotBeReadAreNotNone) {
  const auto reading = [&] { return user_error([&] { checkpoint_steps(paths_); }); };
  fs::create_directories(paths_.folder);
  fs::create_symlink("checkpoints", paths_.checkpoints());
  EXPECT_TRUE(contains(reading(), paths_.checkpoints().string(), "Too many levels of symbolic links"));
  fs::remove(paths_.checkpoints());
  fs::create_symlink("/nowhere/on/a/disk/that/is/not/mounted", paths_.checkpoints());
  EXPECT_TRUE(contains(reading(), paths_.checkpoints().string()));
  fs::remove(paths_.checkpoints());
  write_atomically(paths_.checkpoints(), "a file");
  EXPECT_TRUE(contains(reading(), paths_.checkpoints().string(), "a file, not a folder"));
}

TEST_F(RunFolders, ForbiddenCheckpointsAreNotNone) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  fs::create_directories(paths_.checkpoints());
  fs::permissions(paths_.checkpoints(), fs::perms::none);
  EXPECT_TRUE(contains(user_error([&] { checkpoint_steps(paths_); }), paths_.checkpoints().string(),
                       "permission denied"));
  fs::permissions(paths_.checkpoints(), fs::perms::owner_all);
}

TEST_F(RunFolders, OnlyItsOwnNameIsACheckpoints) {
  EXPECT_EQ(step_of_checkpoint("a/step-00000042.safetensors"), 42);
  EXPECT_EQ(step_of_checkpoint("step-123456789.safetensors"), 123456789);
  for (const char* other :
       {"step-42.safetensors", "step--0000005.safetensors", "step-00000042.safetensors.old",
        "step-99999999999999999999.safetensors", "step-0000004x.safetensors", "best.safetensors"})
    EXPECT_EQ(step_of_checkpoint(other), std::nullopt) << other;
}

TEST_F(RunFolders, CheckpointsAreNamedSoThatTheySort) {
  EXPECT_EQ(paths_.checkpoint(42).filename(), "step-00000042.safetensors");
  EXPECT_EQ(paths_.checkpoint(123456789).filename(), "step-123456789.safetensors");
}

TEST_F(RunFolders, AFolderWithoutCheckpointsHasNone) { EXPECT_TRUE(checkpoint_steps(paths_).empty()); }

// What a resume notes: the device from a step on, where it is another than before.
class DeviceChanges : public RunFolders {
 protected:
  DeviceChanges() { RunFolder::create(paths_.folder, {{"format", 1}, {"recipe", to_json(Recipe())}}); }

  std::optional<std::string> go_on(std::int64_t step, const std::string& device, bool tf32 = false) {
    RunningOptions running;
    running.device = device;
    running.tf32 = tf32;
    return RunFolder::resume(paths_.folder, step).change_device(running, step);
  }
  Json noted() const { return read_run_file(paths_.run()).value("device_changes", Json()); }
};

TEST_F(DeviceChanges, NoneOnTheSameDevice) {
  EXPECT_EQ(go_on(10, "cpu"), std::nullopt);
  EXPECT_EQ(go_on(20, "cpu", /*tf32=*/true), std::nullopt) << "a CPU has none";
  EXPECT_EQ(noted(), Json());
}

TEST_F(DeviceChanges, AreToldWithTheFormerAndNoted) {
  EXPECT_EQ(go_on(10, "cuda"), "cpu");
  EXPECT_EQ(go_on(20, "cuda"), std::nullopt);
  EXPECT_EQ(go_on(30, "cuda", /*tf32=*/true), "cuda");
  EXPECT_EQ(go_on(40, "cpu"), "cuda with TF32");
  EXPECT_EQ(noted(), (Json{{{"step", 10}, {"device", "cuda"}},
                           {{"step", 30}, {"device", "cuda with TF32"}},
                           {{"step", 40}, {"device", "cpu"}}}));
}

TEST_F(DeviceChanges, OfStepsThatAreMadeAnewAreForgotten) {
  go_on(10, "cuda");
  go_on(30, "cpu");
  EXPECT_EQ(go_on(20, "cuda"), std::nullopt) << "as it had been at step 20";
  EXPECT_EQ(noted(), (Json{{{"step", 10}, {"device", "cuda"}}}));
  EXPECT_EQ(go_on(10, "cuda"), "cpu");
  EXPECT_EQ(noted(), (Json{{{"step", 10}, {"device", "cuda"}}}));
}

TEST_F(DeviceChanges, ThatAreDamagedAreTold) {
  for (const Json& damage : {Json(5), Json{{{"step", "ten"}, {"device", "cuda"}}}, Json{{{"step", 1}}}}) {
    Json run = read_run_file(paths_.run());
    run["device_changes"] = damage;
    write_atomically(paths_.run(), std::string_view(run.dump()));
    EXPECT_TRUE(contains(user_error([&] { go_on(10, "cpu"); }), "run.json", "device_changes is", "damaged"));
  }
}

TEST_F(RunFolders, ADamagedRunFileIsTold) {
  const auto reading = [&] { return user_error([&] { read_run_file(paths_.run()); }); };
  EXPECT_TRUE(contains(reading(), paths_.run().string(), "no such file"));
  make_finished_run();
  for (const char* content : {"", "{\"format\": 1, \"reci", "[1, 2]", "null", "\x80\x81"}) {
    write_atomically(paths_.run(), content);
    EXPECT_TRUE(contains(reading(), paths_.run().string(), "damaged")) << content;
  }
}

}  // namespace
}  // namespace lowtide
