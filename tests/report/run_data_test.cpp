#include "lowtide/report/run_data.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lowtide/cost/summary.h"
#include "lowtide/io/file.h"
#include "lowtide/report/landscape.h"
#include "lowtide/train/run_folder.h"
#include "tests/io/scratch.h"
#include "tests/report/made_up_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class RunData : public testing::Test {
 protected:
  RunData() { write_run(folder_, {}); }

  void edit(const fs::path& path, const std::function<void(Json&)>& change) {
    Json json = read_run_file(path);
    change(json);
    write_atomically(path, json.dump());
  }

  std::string problem() {
    return user_error([&] { read_run(folder_); });
  }

  const ScratchFolder scratch_;
  const fs::path folder_ = scratch_ / "run";
  const RunPaths paths_{folder_};
};

TEST_F(RunData, HoldsWhatTheFolderHolds) {
  const Json run = read_run(folder_);
  EXPECT_EQ(run.at("schedule"), "CR 3:8 n=8 grad=8");
  EXPECT_EQ(run.at("seed"), 1);
  EXPECT_EQ(run.at("model"), "cifar-resnet8");
  EXPECT_EQ(run.at("total_steps"), 200);
  EXPECT_EQ(run.at("result"), read_run_file(paths_.result()));
  EXPECT_EQ(run.at("device"), "cpu");
  EXPECT_FALSE(run.contains("landscape"));
}

TEST_F(RunData, LayersAddUpToTheResult) {
  const Json run = read_run(folder_);
  ASSERT_EQ(run.at("layers").size(), 10);
  std::int64_t paper = 0, actual = 0;
  for (const Json& layer : run.at("layers")) {
    paper += layer.at("paper").at("total").get<std::int64_t>();
    actual += layer.at("actual").at("total").get<std::int64_t>();
  }
  EXPECT_EQ(paper, run.at("result").at("bitops").at("paper"));
  EXPECT_EQ(actual, run.at("result").at("bitops").at("actual"));
}

TEST_F(RunData, WithoutACheckpointItSaysWhyThereAreNoLayers) {
  fs::remove_all(paths_.checkpoints());
  const Json run = read_run(folder_);
  EXPECT_FALSE(run.contains("layers"));
  EXPECT_TRUE(contains(run.at("layers_missing"), "no checkpoint"));
  fs::create_directories(paths_.checkpoints());
  write_atomically(paths_.checkpoint(9), "not a checkpoint");
  EXPECT_TRUE(contains(read_run(folder_).at("layers_missing"), "step-00000009"));
}

TEST_F(RunData, SeedsOfOneRecipeAreOneVariant) {
  write_run(scratch_ / "other", {.seed = 2, .log_every = 5, .eval_every = 20});
  EXPECT_EQ(read_run(folder_).at("variant"), read_run(scratch_ / "other").at("variant"));
  write_run(scratch_ / "longer", {.steps = 300});
  EXPECT_NE(read_run(folder_).at("variant"), read_run(scratch_ / "longer").at("variant"));
  write_run(scratch_ / "dearer", {.schedule = "CR 4:8 n=8 grad=8"});
  EXPECT_NE(read_run(folder_).at("variant"), read_run(scratch_ / "dearer").at("variant"));
}

TEST_F(RunData, AScheduleGivenInPartsIsTheSameVariantAsItsLine) {
  const Json line = read_run(folder_).at("variant");
  edit(paths_.run(), [](Json& run) { run["recipe"]["schedule"] = "CR"; });
  EXPECT_EQ(read_run(folder_).at("variant"), line);
}

TEST_F(RunData, AnUnfinishedRunHasNoResult) {
  write_run(scratch_ / "stopped", {.finished = false, .stopped_at = 70});
  const Json run = read_run(scratch_ / "stopped");
  EXPECT_TRUE(run.at("result").is_null());
  EXPECT_EQ(run.at("total_steps"), 200) << "as the recipe asks";
}

TEST_F(RunData, TheScheduleOfARunThatStoppedEarlyIsLaidOverItsPlannedSteps) {
  edit(paths_.result(), [](Json& result) {
    result["steps"] = 120;
    result["planned_steps"] = 200;
  });
  EXPECT_EQ(read_run(folder_).at("total_steps"), 200);
}

TEST_F(RunData, CriticalPeriodsAreToldByNumber) {
  write_run(scratch_ / "deficit", {.schedule = "deficit 3:8 grad=8 steps=50"});
  write_run(scratch_ / "window", {.schedule = "window 3:8 grad=8 from=20 to=60"});
  EXPECT_EQ(read_run(scratch_ / "deficit").at("spec").at("deficit"), 50);
  EXPECT_EQ(read_run(scratch_ / "window").at("spec").at("window"), (Json{20, 60}));
}

TEST_F(RunData, DamageIsAReason) {
  write_atomically(paths_.result(), "{\"metric\": ");
  EXPECT_TRUE(contains(problem(), "result.json", "damaged"));
  write_atomically(paths_.result(), "{\"metric\": \"accuracy\"}");
  EXPECT_TRUE(contains(problem(), "result.json", "lacks 'test'"));
  write_run(folder_, {});
  edit(paths_.result(), [](Json& result) { result["test"] = "high"; });
  EXPECT_TRUE(contains(problem(), "result.json", "test", "not a number"));
  write_run(folder_, {});
  edit(paths_.run(), [](Json& run) { run["format"] = 2; });
  EXPECT_TRUE(contains(problem(), "format 2", "reads format 1"));
  edit(paths_.run(), [](Json& run) { run = Json{{"format", 1}}; });
  EXPECT_TRUE(contains(problem(), "run.json", "not of this format"));
  write_atomically(paths_.run(), "[]");
  EXPECT_TRUE(contains(problem(), "run.json", "damaged"));
  fs::remove(paths_.run());
  EXPECT_TRUE(contains(problem(), "run.json is missing"));
}

TEST_F(RunData, OnlyPlainFilesAreRead) {
  for (const fs::path& path : {paths_.run(), paths_.result()}) {
    SCOPED_TRACE(path);
    write_run(folder_, {});
    fs::rename(path, scratch_ / "elsewhere.json");
    fs::create_symlink(scratch_ / "elsewhere.json", path);
    EXPECT_TRUE(contains(problem(), path.filename().string(), "not a plain file", "links are not followed"));
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_TRUE(contains(problem(), path.filename().string(), "not a plain file"))
        << "and it does not wait for a writer";
    fs::remove(path);
  }
}

TEST_F(RunData, LinesAreSummedUp) {
  const Metrics metrics = read_metrics(paths_.metrics());
  const Json finished = describe_lines(metrics, read_run(folder_).at("result"));
  EXPECT_EQ(finished.at("lines"), 20);
  EXPECT_EQ(finished.at("last").at("step"), 200);
  EXPECT_EQ(finished.at("metric"), "accuracy");
  const Metrics words = parse_metrics("{\"step\":1,\"loss\":5,\"perplexity\":148}\n", "");
  EXPECT_EQ(describe_lines(words, nullptr).at("metric"), "perplexity");
  const Metrics all = parse_metrics(
      R"({"bits":3,"gbitops_actual":1,"gbitops_paper":1,"items_per_s":9,"loss":5,"perplexity":148,"step":1})"
      "\n",
      "");
  EXPECT_EQ(describe_lines(all, nullptr).at("metric"), "perplexity");
  EXPECT_EQ(describe_lines(parse_metrics("", ""), nullptr).at("last"), Json::object());
}

TEST_F(RunData, SchedulesAsRunsOfBits) {
  EXPECT_EQ(schedule_runs("deficit 3:8 grad=8 steps=50", 200), (Json{{3, 50}, {8, 150}}));
  EXPECT_EQ(schedule_runs("fp32", 7), (Json{{0, 7}}));
  EXPECT_EQ(schedule_runs("static 8 grad=6", 7), (Json{{8, 7}}));
  EXPECT_TRUE(schedule_runs("progressive 3,4,8 grad=8", 100).is_null()) << "only training knows";
  EXPECT_TRUE(schedule_runs("price 3:8 every=10 budget=0.6", 100).is_null()) << "likewise";
  EXPECT_TRUE(schedule_runs("someday 3:8", 100).is_null());
}

// Of 192, 5 bits cost 105 and 6 cost 132. The rate is 0.1, and from step 100 on a quarter of it: a bit more.
TEST_F(RunData, MatchedHasTheBitsOfTheRunsLearningRate) {
  const std::string line = "matched 3:8 grad=8 budget=0.6171875";
  write_run(scratch_ / "falls", {.schedule = line});
  edit(scratch_ / "falls" / "run.json", [](Json& json) {
    json["recipe"].update({{"lr-schedule", "steps"}, {"lr-steps", {100}}, {"lr-gamma", 0.25}});
  });
  ScheduleRuns schedules;
  const Json falls = read_run(scratch_ / "falls");
  schedules.add(falls);
  const std::string key = fmt::format("{}|200|{}", line, falls.at("rates").get<std::string>());
  EXPECT_EQ(schedules.json().at(key), (Json{{5, 100}, {6, 100}}));
  // Another rate with the same line has other bits.
  edit(scratch_ / "falls" / "run.json", [](Json& json) { json["recipe"]["lr-gamma"] = 0.0625; });
  schedules.add(read_run(scratch_ / "falls"));
  EXPECT_EQ(schedules.json().size(), 2u);
  EXPECT_FALSE(read_run(folder_).contains("rates")) << "CR follows none";
  // Of a recipe of another program there is none to follow.
  edit(scratch_ / "falls" / "run.json", [](Json& json) { json["recipe"]["lr-schedule"] = "someday"; });
  EXPECT_FALSE(read_run(scratch_ / "falls").contains("rates"));
}

TEST_F(RunData, MoreRunsThanCanBeSeenAreMeans) {
  const Json runs = schedule_runs("delayed 100 at=fp32 CR 3:8 n=10000 grad=8", 1'000'100);
  EXPECT_GT(runs.size(), 1000);
  EXPECT_LT(runs.size(), 4096);
  EXPECT_EQ(runs[0], (Json{0, 100}));
  std::int64_t steps = 0;
  double bits = 0;
  for (const Json& run : runs) {
    steps += run.at(1).get<std::int64_t>();
    bits += run.at(0).get<double>() * run.at(1).get<double>();
    if (steps > 100) {
      EXPECT_GT(run.at(0), 3);
      EXPECT_LT(run.at(0), 8);
    }
  }
  EXPECT_EQ(steps, 1'000'100);
  // Sums of some 1e6 in double precision.
  EXPECT_NEAR(bits / 1e6, summarise(parse_schedule("CR 3:8 n=10000 grad=8"), 1'000'000).mean_bits, 1e-9);
}

TEST_F(RunData, ASavingsStaticHasTheHighestBitsThatOccur) {
  write_run(scratch_ / "falling", {.schedule = "delayed 50 at=8 static 5 grad=6"});
  const Json spec = read_run(scratch_ / "falling").at("spec");
  EXPECT_EQ(spec.at("static"), "static 8 grad=6");
  EXPECT_EQ(spec.at("high"), 8);
}

TEST_F(RunData, LandscapesAreChecked) {
  const auto with = [&](const std::string& text) {
    write_atomically(landscape_path(folder_), text);
    return read_run(folder_);
  };
  const std::string good = R"({"x":[-1,0,1],"y":[0,1],"loss":[[1,2,3],[4,null,6]]})";
  EXPECT_EQ(with(good).at("landscape"), Json::parse(good));
  for (const char* text :
       {R"({"x":[-1,0,1],"y":[0,1],"loss":[[1,2,3]]})", R"({"x":[-1,0,1],"y":[0,1],"loss":[[1,2,3],[4,5]]})",
        R"({"x":[0],"y":[0,1],"loss":[[1],[2]]})", R"({"x":[1,0],"y":[0,1],"loss":[[1,2],[3,4]]})",
        R"({"x":[0,1],"y":[0,1],"loss":[[1,2],[3,"4"]]})", R"({"y":[0,1],"loss":[]})", "[]", "{"}) {
    SCOPED_TRACE(text);
    const Json run = with(text);
    EXPECT_FALSE(run.contains("landscape"));
    EXPECT_TRUE(contains(run.at("landscape_missing"), "landscape.json"));
  }
}

}  // namespace
}  // namespace lowtide
