#include "lowtide/report/run_scan.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lowtide/train/metric.h"
#include "lowtide/train/run_folder.h"
#include "tests/io/scratch.h"
#include "tests/study/fake_runs.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

std::string reason_of(const RunScan& scan, const fs::path& folder) {
  for (const SkippedFolder& skipped : scan.skipped) {
    if (skipped.folder == folder) return skipped.reason;
  }
  return "(not skipped)";
}

TEST(RunScan, FindsRunsAtAnyDepthByName) {
  const ScratchFolder root;
  write_finished(root / "b");
  write_finished(root / "a/deep/one", {.seed = 7, .test = 0.25});
  const RunScan scan = scan_runs(root.path());
  ASSERT_EQ(scan.runs.size(), 2u);
  EXPECT_EQ(scan.runs[0].name, "a/deep/one");
  EXPECT_EQ(scan.runs[0].folder, root / "a/deep/one");
  EXPECT_EQ(scan.runs[0].seed, 7u);
  EXPECT_DOUBLE_EQ(scan.runs[0].test, 0.25);
  EXPECT_EQ(scan.runs[1].name, "b");
  EXPECT_TRUE(scan.skipped.empty());
}

TEST(RunScan, AFolderThatIsARunIsTheRun) {
  const ScratchFolder root;
  write_finished(root / "CR");
  fs::create_directories(root / "CR/checkpoints/run.json");  // what lies within a run is not looked at
  for (const fs::path& folder : {root / "CR", fs::path((root / "CR").string() + "/")}) {
    const RunScan scan = scan_runs(folder);
    ASSERT_EQ(scan.runs.size(), 1u);
    EXPECT_EQ(scan.runs[0].name, "CR");
    EXPECT_TRUE(scan.skipped.empty());
  }
}

TEST(RunScan, NamesWhatItSkipsAndWhy) {
  const ScratchFolder root;
  write_finished(root / "good");
  write_started(root / "half");
  write_finished(root / "cut");
  std::ofstream(root / "cut/result.json") << "{\"metric\":\"accu";
  write_finished(root / "lacking");
  write_json(root / "lacking/result.json", {{"metric", "accuracy"}});
  write_finished(root / "later");
  write_json(root / "later/run.json", {{"format", 9}});
  write_finished(root / "strange", {.metric = "beauty"});
  fs::create_directories(root / "foreign/of/others");
  fs::create_directory_symlink(root / "good", root / "link");
  const RunScan scan = scan_runs(root.path());
  ASSERT_EQ(scan.runs.size(), 1u);
  EXPECT_EQ(scan.skipped.size(), 7u);
  EXPECT_TRUE(contains(reason_of(scan, root / "half"), "is not finished; continue it with"));
  EXPECT_EQ(reason_of(scan, root / "cut"), "result.json: is not valid JSON; the file is damaged");
  EXPECT_TRUE(contains(reason_of(scan, root / "lacking"), "result.json", "lacks 'test'"));
  EXPECT_TRUE(contains(reason_of(scan, root / "later"), "format 9"));
  EXPECT_TRUE(contains(reason_of(scan, root / "strange"), "unknown metric 'beauty'"));
  EXPECT_TRUE(contains(reason_of(scan, root / "foreign"), "not a run folder"));  // once, for all of it
  EXPECT_TRUE(contains(reason_of(scan, root / "link"), "symbolic link"));
}

TEST(RunScan, NothingInAFolderStopsIt) {
  const ScratchFolder root;
  write_finished(root / "good");
  write_finished(root / "deep");
  std::ofstream(root / "deep/result.json") << std::string(200'000, '[');
  write_finished(root / "pipe");
  fs::remove(root / "pipe/result.json");
  ASSERT_EQ(::mkfifo((root / "pipe/result.json").c_str(), 0600), 0);
  write_finished(root / "loop");
  fs::remove(root / "loop/result.json");
  fs::create_symlink("result.json", root / "loop/result.json");
  write_finished(root / "huge");
  fs::resize_file(root / "huge/result.json", std::uintmax_t{1} << 40);
  const RunScan scan = scan_runs(root.path());
  ASSERT_EQ(scan.runs.size(), 1u);
  EXPECT_TRUE(contains(reason_of(scan, root / "deep"), "nested more than 64 levels deep"));
  EXPECT_TRUE(contains(reason_of(scan, root / "pipe"), "not a regular file"));
  EXPECT_TRUE(contains(reason_of(scan, root / "loop"), "symbolic links"));
  EXPECT_TRUE(contains(reason_of(scan, root / "huge"), "expected at most"));
}

TEST(RunScan, NothingToFind) {
  const ScratchFolder root;
  fs::create_directories(root / "a/b");
  const RunScan scan = scan_runs(root.path());
  ASSERT_EQ(scan.skipped.size(), 1u);
  EXPECT_TRUE(contains(reason_of(scan, root / "a"), "not a run folder"));
  EXPECT_TRUE(contains(reason_of(scan_runs(root / "a/b"), root / "a/b"), "not a run folder"));
  EXPECT_TRUE(contains(reason_of(scan_runs(root / "nowhere"), root / "nowhere"), "no such folder; expected"));
  std::ofstream(root / "file") << "x";
  EXPECT_TRUE(contains(reason_of(scan_runs(root / "file"), root / "file"), "not a folder; expected"));
}

TEST(Comparison, ShowsEachMetricInItsUnit) {
  RunSummary image{.folder = "image", .name = "image", .metric = "accuracy"};
  RunSummary text{.folder = "text", .name = "text", .metric = "perplexity"};
  image.test = 0.8873;
  text.test = 85.591;
  EXPECT_TRUE(contains(comparison_text({image}), "test accuracy", "88.73 %"));
  EXPECT_TRUE(contains(comparison_text({text}), "test perplexity", " 85.59 "));
  EXPECT_TRUE(contains(comparison_text({image, text}), "test accuracy", "88.73 %", "test perplexity",
                       " 85.59 ", "differ in metric (accuracy, perplexity)"));
}

// A network whose shortcuts stay in fp32: 0.0382 as the papers count, 0.059 in fact.
FakeRun mixed() {
  return {.relative_cost = 0.0382, .gbitops_paper = 382, .gbitops_actual = 590, .seconds = 20, .steps = 2000};
}

TEST(Comparison, ShowsTheCountThatIsAskedForByName) {
  const ScratchFolder root;
  write_finished(root / "mixed", mixed());
  const std::vector<RunSummary> runs = scan_runs(root.path()).runs;
  EXPECT_NEAR(runs.at(0).cost.relative_actual, 0.059, 1e-12);
  EXPECT_EQ(runs.at(0).data, "digits");
  EXPECT_TRUE(contains(comparison_text(runs), " 0.0590 ", "590.0", "382.0",
                       "relative to fp32, actual: each layer at the bits it ran at",
                       "front: by bit operations (actual)"));
  EXPECT_TRUE(contains(comparison_text(runs, {.count = CostCount::kPaper}), " 0.0382 ",
                       "relative to fp32, paper: every layer at the scheduled bits"));
  EXPECT_TRUE(contains(comparison_text(runs, {.axis = CostAxis::kTime}), "front: by time"));
}

TEST(Comparison, RunsOfAnotherLengthModelOrDataAreOnNoCommonFront) {
  const ScratchFolder root;
  FakeRun whole = mixed(), dearer = mixed(), brief = mixed(), other = mixed();
  whole.test = 0.9;
  dearer.test = 0.88;
  dearer.gbitops_actual = 700;
  dearer.seconds = 10;
  brief.test = 0.5;  // cheap and bad: on a front with the others it would stay
  brief.gbitops_actual = 18;
  brief.steps = 60;
  other.model = "larger";
  other.data_dir = "/data/letters/";
  other.test = 0.99;
  write_finished(root / "a", whole);
  write_finished(root / "b", dearer);
  write_finished(root / "c", brief);
  write_finished(root / "d", other);
  const std::vector<RunSummary> runs = scan_runs(root.path()).runs;
  const auto front = [&](const CostMeasure& measure) {
    std::string names;
    for (const Json& run : comparison_json(runs, measure)) {
      if (run.at("on_front")) names += run.at("run");
    }
    return names;
  };
  EXPECT_EQ(comparable_sets(runs).size(), 3u);
  EXPECT_EQ(front({}), "acd");
  EXPECT_EQ(front({.count = CostCount::kPaper}), "acd");  // 382 both: the better one
  EXPECT_EQ(front({.axis = CostAxis::kTime}), "abcd");
  const std::string text = comparison_text(runs);
  EXPECT_TRUE(contains(
      text, "net on digits, 2000 steps\n", "net on digits, 60 steps\n", "larger on letters, 2000 steps\n",
      "differ in model (larger, net), in data (digits, letters), in length (60, 2000 steps)"));
}

TEST(Comparison, SaysInWhatElseRunsDiffer) {
  RunSummary a{.folder = "a", .name = "a", .data = "data", .metric = "accuracy", .data_dir = "/x/data"};
  a.variant = {{"schedule", "CR"}, {"lr", 0.1}, {"hidden", 16}};
  RunSummary b = a;
  b.variant["schedule"] = "RR";
  EXPECT_FALSE(contains(comparison_text({a, b}), "differ in"));
  b.variant["hidden"] = 512;
  b.data_dir = "/y/data";
  EXPECT_TRUE(contains(comparison_text({a, b}), "The recipes of these runs differ in hidden.",
                       "taken for the same, though it lay in /x/data and in /y/data"));
}

TEST(CostMeasure, ReadsItsWords) {
  EXPECT_EQ(parse_count("paper"), CostCount::kPaper);
  EXPECT_EQ(parse_axis("time"), CostAxis::kTime);
  EXPECT_TRUE(contains(user_error([] { parse_count("both"); }), "count is 'both'; expected actual or paper"));
  EXPECT_TRUE(contains(user_error([] { parse_axis("money"); }), "axis is 'money'; expected bitops or time"));
}

TEST(Comparison, TellsTheBestFromTheLast) {
  RunSummary plain{.folder = "plain", .name = "plain", .metric = "accuracy"};
  RunSummary kept{.folder = "kept", .name = "kept", .metric = "accuracy"};
  kept.test = 0.5;
  kept.best = {.step = 120, .valid = 0.9, .test = {.metric = 0.8125}};
  EXPECT_FALSE(contains(comparison_text({plain}, {}), "best"));
  EXPECT_TRUE(contains(comparison_text({plain, kept}, {}), "test at best", " 50.00 % ", "81.25 % at 120"));
  const Json json = comparison_json({plain, kept}, {});
  EXPECT_TRUE(json[0].at("best").is_null());
  EXPECT_EQ(json[1].at("best").at("step"), 120);
  EXPECT_EQ(json[1].at("test"), 0.5);
}

TEST(Comparison, ADamagedBestIsAReason) {
  const ScratchFolder root;
  write_finished(root / "run");
  Json result = read_run_file(root / "run/result.json");
  result["best"] = {{"step", "many"}, {"test", 0.5}};
  write_json(root / "run/result.json", result);
  EXPECT_TRUE(contains(user_error([&] { read_run_summary(root / "run"); }), "best: step is \"many\""));
}

TEST(Metric, KnowsDirections) {
  EXPECT_TRUE(find_metric("accuracy").higher_is_better);
  EXPECT_TRUE(find_metric("map").higher_is_better);
  EXPECT_FALSE(find_metric("Perplexity").higher_is_better);
  EXPECT_FALSE(find_metric("loss").higher_is_better);
  EXPECT_EQ(metric_difference(find_metric("accuracy"), 0.0045), "+0.45");
  EXPECT_EQ(metric_difference(find_metric("loss"), -0.0045), "-0.0045");
  EXPECT_TRUE(contains(user_error([] { find_metric("beauty"); }), "unknown metric 'beauty'"));
}

}  // namespace
}  // namespace lowtide
