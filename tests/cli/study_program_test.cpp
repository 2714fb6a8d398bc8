// Studies as a user runs them: the program starting itself, on small made-up data.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "lowtide/base/json.h"
#include "lowtide/io/file.h"
#include "lowtide/study/child.h"
#include "lowtide/train/run_folder.h"
#include "tests/io/scratch.h"
#include "tests/study/fake_slurm.h"
#include "tests/study/fake_trainer.h"
#include "tests/train/small_run.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

struct Finished {
  int code = 0;
  std::string text;  // stdout and stderr
};

class StudyProgram : public testing::Test {
 protected:
  StudyProgram() {
    write_small_dataset(folder_ / "data");
    std::ofstream(recipe_) << to_toml(small_recipe(folder_ / "data"));
  }

  static Finished wait_for(Child& child, const fs::path& log) {
    std::optional<int> code;
    while (!(code = child.ended())) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return {*code, read_text_file(log)};
  }

  Finished run(const std::vector<std::string>& arguments) {
    const fs::path log = folder_ / ("output-" + std::to_string(++commands_));
    Child child(LOWTIDE_PROGRAM, arguments, log);
    return wait_for(child, log);
  }

  std::vector<std::string> suite(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"study",          "suite",    "--recipe",
                                       recipe_.string(), "--out",    (folder_ / out).string(),
                                       "--schedules",    "CR,static"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  void expect_mistake(const std::vector<std::string>& arguments, const std::string& message) {
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.code, 2) << finished.text;
    EXPECT_TRUE(contains(finished.text, message));
    EXPECT_EQ(std::count(finished.text.begin(), finished.text.end(), '\n'), 1) << finished.text;
  }

  const ScratchFolder folder_;
  const fs::path recipe_ = folder_ / "small.toml";
  int commands_ = 0;
};

TEST_F(StudyProgram, ASuiteFromRunToAdvice) {
  const std::string out = (folder_ / "s").string();
  const Finished suite_run = run(suite("s", {"--seeds", "2", "--jobs", "2"}));
  ASSERT_EQ(suite_run.code, 0) << suite_run.text;
  EXPECT_TRUE(
      contains(suite_run.text, "[1/4] CR-seed1 starts", "static-seed2 done: accuracy", "study analyze"));
  const Finished status = run({"study", "status", out, "--json"});
  ASSERT_EQ(status.code, 0) << status.text;
  for (const Json& member : Json::parse(status.text)) EXPECT_EQ(member.at("state"), "done");
  const fs::path json = folder_ / "a.json", csv = folder_ / "a.csv";
  const Finished analysis = run({"study", "analyze", out, "--json", json.string(), "--csv", csv.string()});
  ASSERT_EQ(analysis.code, 0) << analysis.text;
  EXPECT_TRUE(
      contains(analysis.text, "# Schedule suite", "| CR | medium |", "## Better than static at less cost"));
  EXPECT_EQ(Json::parse(read_text_file(json)).at("settings").size(), 2u);
  EXPECT_TRUE(contains(read_text_file(csv), "setting,schedule", "\nCR,CR 3:8 n=4 grad=8,"));
  const Finished advice =
      run({"advise", "--recipe", recipe_.string(), "--goal", "cheapest", "--from", out, "--json"});
  ASSERT_EQ(advice.code, 0) << advice.text;
  EXPECT_EQ(Json::parse(advice.text).at("schedule"), "CR 3:8 n=4 grad=8");
  const Finished table = run({"compare", out});
  EXPECT_EQ(table.code, 0);
  EXPECT_TRUE(contains(table.text, "CR-seed1", "static-seed2"));
  // Nothing is left to do, and another definition is refused.
  const Finished again = run(suite("s", {"--seeds", "2"}));
  EXPECT_EQ(again.code, 0);
  EXPECT_FALSE(contains(again.text, "starts"));
  expect_mistake(suite("s", {"--seeds", "1"}), "this study has 2 seeds, but --seeds is 1");
  // Without --seeds it keeps those that it has; with more it grows, and runs those alone.
  EXPECT_FALSE(contains(run(suite("s")).text, "starts"));
  const Finished grown = run(suite("s", {"--seeds", "3"}));
  ASSERT_EQ(grown.code, 0) << grown.text;
  EXPECT_TRUE(contains(grown.text, "grows from 2 to 3 seeds", "[5/6] CR-seed3 starts", "static-seed3 done"));
  EXPECT_FALSE(contains(grown.text, "seed1"));
  const Finished three = run({"study", "analyze", out, "--count", "paper"});
  EXPECT_TRUE(contains(three.text, "GBitOps, paper", "3 seeds cannot tell a difference below"));
  expect_mistake({"study", "analyze", out, "--axis", "money"}, "axis is 'money'");
  EXPECT_TRUE(contains(three.text, "; test accuracy"));
  EXPECT_TRUE(contains(run({"study", "analyze", out, "--split", "valid"}).text, "; held-out accuracy"));
  expect_mistake({"study", "analyze", out, "--split", "train"}, "split is 'train'");
}

TEST_F(StudyProgram, ABudgetStudyFromRunToAdvice) {
  const std::string out = (folder_ / "b").string();
  std::vector<std::string> asked{"study",   "budget", "--recipe",    recipe_.string(),
                                 "--out",   out,      "--schedules", "CR,constant,shorter",
                                 "--seeds", "1",      "--jobs",      "2",
                                 "--steps", "40",     "--budgets",   "0.63"};
  const Finished finished = run(asked);
  ASSERT_EQ(finished.code, 0) << finished.text;
  EXPECT_TRUE(contains(finished.text, "[1/4] CR-0.63-seed1 starts", "shorter-0.63-seed1 done: accuracy"));
  EXPECT_FALSE(contains(run(asked).text, "starts")) << "nothing is left to do";
  const Finished analysis = run({"study", "analyze", out});
  ASSERT_EQ(analysis.code, 0) << analysis.text;
  EXPECT_TRUE(contains(analysis.text, "# Equal cost", "## At 0.63 of static's cost", "## At full cost"));
  // 0.63 of 40 steps is 25.
  const Json result = Json::parse(read_text_file(RunPaths{folder_ / "b" / "shorter-0.63-seed1"}.result()));
  EXPECT_EQ(result.at("steps"), 25);
  const Finished advice = run(
      {"advise", "--recipe", recipe_.string(), "--steps", "40", "--budget", "0.5", "--from", out, "--json"});
  ASSERT_EQ(advice.code, 0) << advice.text;
  EXPECT_EQ(Json::parse(advice.text).at("schedule"), "static 8 grad=8 budget=0.5");
  asked.back() = "0.5";
  expect_mistake(asked, "budgets is [0.63] in this study, but [0.5] was asked for");
  asked.back() = "1.5";
  expect_mistake(asked, "budgets has 1.5; expected shares");
}

// A loop's bits, shuffled and of the other seed, are tables with bits for every layer, in the ledger's order.
TEST_F(StudyProgram, ABudgetStudyOfALoopAndItsBits) {
  const std::string out = (folder_ / "w").string();
  std::vector<std::string> asked{"study",     "budget", "--recipe",    recipe_.string(),
                                 "--out",     out,      "--schedules", "waterfill,constant",
                                 "--seeds",   "2",      "--steps",     "40",
                                 "--budgets", "0.63"};
  const Finished finished = run(asked);
  ASSERT_EQ(finished.code, 0) << finished.text;
  const auto result = [&](const char* member) {
    return Json::parse(read_text_file(RunPaths{folder_ / "w" / member}.result()));
  };
  for (const char* copy : {"waterfill-shuffled-0.63-seed1", "waterfill-replayed-0.63-seed1"}) {
    const bool is_shuffled = std::string_view(copy).find("shuffled") != std::string_view::npos;
    const Json source = result(is_shuffled ? "waterfill-0.63-seed1" : "waterfill-0.63-seed2"),
               its = result(copy);
    EXPECT_EQ(its.at("bitops"), source.at("bitops")) << "the same bits in each layer";
    EXPECT_EQ(its.at("eval_bits"), is_shuffled ? 6 : 8);
  }
  EXPECT_EQ(result("constant-0.63-seed1").at("eval_bits"), 6);
  const Finished analysis = run({"study", "analyze", out, "--way", "waterfill"});
  ASSERT_EQ(analysis.code, 0) << analysis.text;
  EXPECT_TRUE(contains(analysis.text, "| waterfill | 8 |", "| waterfill shuffled | 6 |",
                       "| waterfill replayed | 8 |", "## waterfill, frozen beforehand",
                       "## A loop and its own bits"));
  expect_mistake({"study", "analyze", out, "--way", "tide"}, "'tide' has no result");
  expect_mistake({"study", "analyze", out, "--budget", "0.63"}, "--way");
  // With rules for all layers there is nothing to choose.
  asked[5] = (folder_ / "ruled").string();
  asked.insert(asked.end(), {"--layer-bits", "*=8"});
  const Finished ruled = run(asked);
  ASSERT_EQ(ruled.code, 0) << ruled.text;
  EXPECT_TRUE(
      contains(ruled.text, "left out: waterfill: ", "waterfill chooses bits for layers that have weights"));
  EXPECT_FALSE(contains(run(asked).text, "starts")) << "and the same command goes on";
}

TEST_F(StudyProgram, StoppedByASignalItGoesOnToTheSameResult) {
  const std::vector<std::string> longer{"--seeds", "1", "--jobs", "2", "--steps", "300", "--checkpoint-every",
                                        "0"};
  const fs::path log = folder_ / "log", out = folder_ / "s";
  Child child(LOWTIDE_PROGRAM, suite("s", longer), log);
  ASSERT_TRUE(comes_true([&] {
    return fs::exists(RunPaths{out / "CR-seed1"}.metrics()) &&
           fs::file_size(RunPaths{out / "CR-seed1"}.metrics()) > 0;
  }));
  child.send(SIGTERM);
  const Finished stopped = wait_for(child, log);
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.text;
  EXPECT_TRUE(contains(stopped.text, "stopped; continue with: lowtide study suite --study"));
  EXPECT_FALSE(checkpoint_steps(RunPaths{out / "CR-seed1"}).empty());
  EXPECT_TRUE(contains(run({"study", "status", out.string()}).text, "saved"));
  const Finished resumed =
      run({"study", "suite", "--study", (out / "study.toml").string(), "--out", out.string()});
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_TRUE(contains(resumed.text, "CR-seed1 goes on"));
  const fs::path alone = folder_ / "alone";
  ASSERT_EQ(run({"train", "--recipe", (out / "CR-seed1/recipe.toml").string(), "--out", alone.string()}).code,
            0);
  EXPECT_EQ(file_bytes(RunPaths{out / "CR-seed1"}.checkpoint(300)),
            file_bytes(RunPaths{alone}.checkpoint(300)));
}

TEST_F(StudyProgram, AMemberThatFailsIsReportedAtTheEnd) {
  // The data lacks its labels: nothing can be trained.
  fs::remove(folder_ / "data/train-labels-idx1-ubyte");
  const Finished failed = run(suite("s", {"--seeds", "1"}));
  EXPECT_EQ(failed.code, 2);
  EXPECT_TRUE(contains(failed.text, "[1/2] CR-seed1 failed: lowtide:", "train-labels-idx1-ubyte",
                       "lowtide: 2 of 2 runs failed, the first CR-seed1"));
  EXPECT_TRUE(contains(run({"study", "status", (folder_ / "s").string()}).text, "failed", "2 failed"));
}

// As schedulers use it: every run by a process of its own, one of them preempted.
TEST_F(StudyProgram, MembersOneByOneGiveTheBytesOfTheWholeStudy) {
  const std::vector<std::string> length{"--seeds", "1", "--steps", "300", "--checkpoint-every", "0"};
  ASSERT_EQ(run(suite("whole", length)).code, 0);
  const fs::path out = folder_ / "apart";
  std::vector<std::string> laid_out = length;
  laid_out.insert(laid_out.end(), {"--submit", "none"});
  EXPECT_TRUE(contains(run(suite("apart", laid_out)).text, "holds a study of 2 runs", "INDEX, from 0 to 1"));
  const fs::path log = folder_ / "member.log";
  Child preempted(LOWTIDE_PROGRAM, {"study", "member", out.string(), "0"}, log);
  const RunPaths first{out / "CR-seed1"};
  ASSERT_TRUE(comes_true([&] { return fs::exists(first.metrics()) && fs::file_size(first.metrics()) > 0; }));
  preempted.send(SIGTERM);
  const Finished stopped = wait_for(preempted, log);
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.text;
  EXPECT_EQ(checkpoint_steps(first).size(), 1u);
  EXPECT_FALSE(fs::exists(first.lease()));
  EXPECT_TRUE(contains(run({"study", "member", out.string(), "0"}).text, "[1/2] CR-seed1 goes on", "done"));
  {
    make_folders(out / "static-seed1");
    const Lease held = take_run({out / "static-seed1"});
    const Finished second = run({"study", "member", out.string(), "1"});
    EXPECT_EQ(second.code, 75);
    EXPECT_TRUE(contains(second.text, "lowtide: static-seed1 is trained elsewhere already, by process"));
  }
  EXPECT_TRUE(
      contains(run({"study", "member", out.string(), "1"}).text, "[2/2] static-seed1 starts", "done"));
  const Finished again = run({"study", "member", out.string(), "1"});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.text, "static-seed1 is done already\n");
  for (const char* member : {"CR-seed1", "static-seed1"}) {
    EXPECT_EQ(file_bytes(RunPaths{out / member}.checkpoint(300)),
              file_bytes(RunPaths{folder_ / "whole" / member}.checkpoint(300)))
        << member;
  }
  expect_mistake({"study", "member", out.string(), "2"}, "there is no member 2; expected 0 to 1");
  expect_mistake({"study", "member", (folder_ / "data").string(), "0"}, "no study.toml");
}

// What a launcher of several processes says is for ranks of one run, which members are not.
TEST_F(StudyProgram, AMemberIsNoRankOfWhatStartedIt) {
  const std::vector<std::string> variables[]{{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1"},
                                             {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
                                              "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
                                             {"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1", "SLURM_JOB_ID=7"},
                                             {"PMI_RANK=1", "PMI_SIZE=2"},
                                             {"PMIX_RANK=1"}};
  const auto member_of = [&](const std::string& out, std::vector<std::string> words) {
    EXPECT_EQ(run(suite(out, {"--seeds", "1", "--submit", "none"})).code, 0);
    words.insert(words.end(), {LOWTIDE_PROGRAM, "study", "member", (folder_ / out).string(), "0"});
    const fs::path log = folder_ / (out + ".log");
    Child child("/usr/bin/env", words, log);
    const Finished finished = wait_for(child, log);
    EXPECT_EQ(finished.code, 0) << out << ": " << finished.text;
    const RunPaths paths{folder_ / out / "CR-seed1"};
    const std::vector<std::int64_t> steps = checkpoint_steps(paths);
    return steps.empty() ? out + " has none" : file_bytes(paths.checkpoint(steps.back()));
  };
  const std::string bytes = member_of("alone", {});
  for (const std::vector<std::string>& launcher : variables)
    EXPECT_EQ(member_of("by " + launcher[0], launcher), bytes) << launcher[0];
}

TEST_F(StudyProgram, CriticalPeriods) {
  const std::string out = (folder_ / "c").string();
  const Finished study = run({"study", "critical", "--recipe", recipe_.string(), "--out", out, "--deficits",
                              "0,10", "--seeds", "2", "--jobs", "2", "--steps", "20"});
  ASSERT_EQ(study.code, 0) << study.text;
  const Json result = read_run_file(RunPaths{folder_ / "c/deficit-10-seed1"}.result());
  EXPECT_EQ(result.at("steps"), 30);
  // (10 (3² + 2·3·8) + 20 (8² + 2·8·8)) / (30 · 3072)
  EXPECT_NEAR(result.at("relative_cost").get<double>(), (10.0 * 57 + 20.0 * 192) / (30.0 * 3072), 1e-12);
  EXPECT_TRUE(contains(run({"study", "analyze", out}).text, "# Critical periods: deficits", "| 10 |"));
}

TEST_F(StudyProgram, LandscapesOfTwoRuns) {
  const fs::path a = folder_ / "a", b = folder_ / "b";
  for (const fs::path& out : {a, b}) {
    ASSERT_EQ(run({"train", "--recipe", recipe_.string(), "--out", out.string(), "--schedule",
                   out == a ? "CR" : "fp32", "--swa-start", out == a ? "1" : "0.5", "--swa-every", "2"})
                  .code,
              0);
  }
  const std::vector<std::string> command{"study",  "landscape", "--checkpoint", a.string(), b.string(),
                                         "--grid", "5",         "--split",      "test",     "--items",
                                         "0"};
  const Finished first = run(command);
  ASSERT_EQ(first.code, 0) << first.text;
  EXPECT_TRUE(contains(first.text, "a: test loss over 60 images at 8 bits, 5 × 5 positions", "b: test loss",
                       "sharpness"));
  for (const fs::path& out : {a, b}) {
    // The weights that the run was judged by lie in the middle, the averaged ones where there are such.
    const Json landscape = Json::parse(read_text_file(out / "landscape.json"));
    const Json result = read_run_file(RunPaths{out}.result());
    EXPECT_EQ(landscape.at("loss")[2][2], result.at("test_loss"));
    EXPECT_NE(landscape.at("loss")[2][3], result.at("test_loss"));
    EXPECT_EQ(landscape.at("bits"), result.at("eval_bits"));
    EXPECT_EQ(landscape.at("checkpoint"), out == a ? "step-00000040.safetensors" : "averaged.safetensors");
  }
  // The same again, whatever the threads; another seed goes elsewhere, from the same place.
  const std::string before = file_bytes(a / "landscape.json");
  std::vector<std::string> again = command;
  again.insert(again.end(), {"--threads", "1"});
  ASSERT_EQ(run(again).code, 0);
  EXPECT_EQ(file_bytes(a / "landscape.json"), before);
  again.insert(again.end(), {"--seed", "2"});
  ASSERT_EQ(run(again).code, 0);
  const Json other = Json::parse(file_bytes(a / "landscape.json"));
  EXPECT_EQ(other.at("loss")[2][2], Json::parse(before).at("loss")[2][2]);
  EXPECT_NE(other.at("loss")[2][3], Json::parse(before).at("loss")[2][3]);
  // A checkpoint on the way, over some items.
  const Finished on_the_way = run({"study", "landscape", "--checkpoint", RunPaths{a}.checkpoint(36).string(),
                                   "--grid", "3", "--items", "20", "--split", "valid", "--bits", "0"});
  ASSERT_EQ(on_the_way.code, 0) << on_the_way.text;
  EXPECT_TRUE(contains(on_the_way.text, "a, step 36: valid loss over 20 images at fp32"));
}

TEST_F(StudyProgram, LandscapeOfWhatIsNone) {
  const fs::path out = folder_ / "a";
  ASSERT_EQ(run({"train", "--recipe", recipe_.string(), "--out", out.string(), "--validation", "0"}).code, 0);
  const std::string checkpoint = RunPaths{out}.checkpoint(40).string();
  const auto landscape = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"study", "landscape"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  expect_mistake(landscape({}), "--checkpoint");
  expect_mistake(landscape({"--checkpoint", "/nowhere"}), "/nowhere: no such file; expected a run folder");
  expect_mistake(landscape({"--checkpoint", folder_.path().string()}), "not a run folder");
  expect_mistake(landscape({"--checkpoint", (folder_ / "data/t10k-labels-idx1-ubyte").string()}),
                 "not in a run folder");
  expect_mistake(landscape({"--checkpoint", checkpoint, "--grid", "20"}),
                 "grid is 20; expected an odd number");
  expect_mistake(landscape({"--checkpoint", checkpoint, "--span", "0"}), "span is 0");
  expect_mistake(landscape({"--checkpoint", checkpoint, "--items", "-1"}), "items is -1");
  expect_mistake(landscape({"--checkpoint", checkpoint, "--split", "exam"}), "split is 'exam'");
  expect_mistake(landscape({"--checkpoint", checkpoint, "--split", "valid"}), "held no items out");
  expect_mistake(landscape({"--checkpoint", checkpoint, out.string()}), "are of one run");
  expect_mistake(landscape({"--checkpoint", checkpoint, "--bits", "1"}), "bits is 1");
  const std::string run_json = file_bytes(RunPaths{out}.run());
  std::ofstream(RunPaths{out}.run()) << "{\"format\":";
  expect_mistake(landscape({"--checkpoint", out.string()}), "run.json: is not valid JSON");
  std::ofstream(RunPaths{out}.run()) << run_json;
  fs::resize_file(checkpoint, 1000);
  expect_mistake(landscape({"--checkpoint", out.string()}),
                 "step-00000040.safetensors: not a valid safetensors");
  fs::remove_all(RunPaths{out}.checkpoints());
  expect_mistake(landscape({"--checkpoint", out.string()}), "no checkpoint in it");
  EXPECT_FALSE(fs::exists(out / "landscape.json"));
}

TEST_F(StudyProgram, RangeTestWritesARecipe) {
  const fs::path applied = folder_ / "applied.toml";
  const Finished test =
      run({"range-test", "--recipe", recipe_.string(), "--bits", "3:4", "--test-steps", "60", "--window",
           "10", "--threshold", "0.001", "--out", (folder_ / "r").string(), "--apply", applied.string()});
  ASSERT_EQ(test.code, 0) << test.text;
  EXPECT_TRUE(contains(test.text, "2 bits", "3 bits", "4 bits", "q_min = ", "wrote "));
  const Finished config = run({"train", "--recipe", applied.string(), "--print-config"});
  EXPECT_EQ(config.code, 0) << config.text;
  const std::size_t at = test.text.find("q_min = ") + 8;
  EXPECT_TRUE(contains(config.text, "bits = \"" + test.text.substr(at, 1) + ":4\"", "steps = 40"));
}

// What is submitted are runs like those of this machine, which tell the same in the end.
TEST_F(StudyProgram, CriticalPeriodsAndRangeTestsAreSubmitted) {
  const FakeSlurm slurm;
  slurm.have("sbatch", "echo 7");
  slurm.have("squeue", "echo '{\"jobs\":[]}'");
  const std::string out = (folder_ / "c").string(), tested = (folder_ / "r").string();
  std::vector<std::string> critical{"study",   "critical", "--recipe",   recipe_.string(),
                                    "--out",   out,        "--steps",    "20",
                                    "--seeds", "1",        "--deficits", "0,10"};
  std::vector<std::string> test{
      "range-test", "--recipe", recipe_.string(), "--bits", "3:4",   "--test-steps", "60",
      "--window",   "10",       "--threshold",    "0.001",  "--out", tested};
  const auto submitted = [&](std::vector<std::string> command, const std::string& folder, int members) {
    command.insert(command.end(), {"--submit", "slurm"});
    EXPECT_TRUE(contains(run(command).text, "submitted " + std::to_string(members) + " runs as job 7;"));
    EXPECT_TRUE(contains(read_text_file(fs::path(folder) / "slurm.sh"),
                         "#SBATCH --array=0-" + std::to_string(members - 1) + "\n",
                         "study member " + folder));
    for (int index = 0; index < members; ++index) {
      const Finished member = run({"study", "member", folder, std::to_string(index)});
      EXPECT_EQ(member.code, 0) << member.text;
    }
    EXPECT_TRUE(contains(run(command).text, "every run is done, trained now or queued"));
  };
  submitted(critical, out, 2);
  EXPECT_EQ(read_run_file(RunPaths{folder_ / "c/deficit-10-seed1"}.result()).at("steps"), 30);
  submitted(test, tested, 3);
  EXPECT_TRUE(contains(run(test).text, "2 bits", "3 bits", "4 bits", "q_min = "));
}

TEST_F(StudyProgram, AdviceMeetsTheBudgetAsCostCountsIt) {
  const Finished advice =
      run({"advise", "--recipe", recipe_.string(), "--budget", "0.6", "--steps", "1000", "--json"});
  ASSERT_EQ(advice.code, 0) << advice.text;
  const Json json = Json::parse(advice.text);
  EXPECT_LE(json.at("of_static").get<double>(), 0.6);
  EXPECT_GT(json.at("of_static").get<double>(), 0.58);
  EXPECT_TRUE(contains(json.at("command").get<std::string>(), "lowtide train --recipe", "--steps 1000",
                       "--eval-bits 6", "--schedule '"));
  const Finished cost = run({"cost", "--recipe", recipe_.string(), "--steps", "1000", "--schedule",
                             json.at("schedule").get<std::string>(), "--json"});
  EXPECT_EQ(Json::parse(cost.text).at("relative_cost"), json.at("relative_cost"));
}

TEST_F(StudyProgram, MistakesAreOneLineAndExitCode2) {
  const std::string recipe = recipe_.string(), out = (folder_ / "never").string();
  expect_mistake({"study", "walk"}, "unknown command 'study walk'");
  expect_mistake({"study", "suite", "--recipe", recipe}, "--out");
  expect_mistake({"study", "suite", "--recipe", recipe, "--out", out, "--schedules", "XX"}, "XX");
  expect_mistake({"study", "suite", "--recipe", recipe, "--out", out, "--schedule", "RR"},
                 "leave --schedule out");
  expect_mistake({"study", "suite", "--recipe", recipe, "--out", out, "--jobs", "0"}, "jobs is 0");
  expect_mistake({"study", "suite", "--recipe", recipe, "--out", folder_.path().string()},
                 "holds other things");
  expect_mistake({"study", "suite", "--recipe", recipe, "--out", out, "--time", "60"}, "add --submit slurm");
  expect_mistake({"study", "suite", "--recipe", recipe, "--out", out, "--submit", "slum"},
                 "did you mean 'slurm'?");
  expect_mistake({"study", "suite", "--recipe", recipe, "--out", out, "--submit", "none", "--jobs", "2"},
                 "--jobs is for runs on this machine");
  expect_mistake({"range-test", "--recipe", recipe, "--submit", "none"}, "--submit needs --out");
  expect_mistake({"study", "critical", "--recipe", recipe, "--out", out}, "--deficits, or a --window");
  expect_mistake({"study", "status", folder_.path().string()}, "no study.toml");
  expect_mistake({"study", "analyze", "/nowhere"}, "no study.toml");
  expect_mistake({"range-test", "--recipe", recipe, "--window", "0"}, "two windows");
  expect_mistake({"advise", "--recipe", recipe}, "expected --budget");
  expect_mistake({"advise", "--recipe", recipe, "--budget", "0.5", "--goal", "best"}, "expected --budget");
  expect_mistake({"advise", "--recipe", recipe, "--goal", "fastest"}, "goal is 'fastest'");
  expect_mistake({"advise", "--recipe", recipe, "--budget", "0.01"}, "no schedule meets the budget");
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(StudyProgram, Help) {
  const std::vector<std::vector<std::string>> all{{"study", "--help"},
                                                  {"study", "suite", "--help"},
                                                  {"study", "critical", "--help"},
                                                  {"study", "landscape", "--help"},
                                                  {"study", "member", "--help"},
                                                  {"study", "status", "--help"},
                                                  {"study", "cancel", "--help"},
                                                  {"study", "analyze", "--help"},
                                                  {"range-test", "--help"},
                                                  {"advise", "--help"}};
  for (const std::vector<std::string>& command : all) {
    const Finished help = run(command);
    EXPECT_EQ(help.code, 0) << help.text;
    EXPECT_TRUE(contains(help.text, "--help"));
  }
}

}  // namespace
}  // namespace lowtide
