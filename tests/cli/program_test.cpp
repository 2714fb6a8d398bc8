// The program as a user has it: real processes, signals, full disks, wrong input.
#include "tests/cli/program.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "lowtide/base/json.h"
#include "lowtide/io/jsonl.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

TEST_F(Program, KilledAtAnyMomentEndsAsIfItHadNotBeen) {
  const std::vector<std::string> longer{"--steps", "400", "--checkpoint-every", "10"};
  const std::string expected = uninterrupted(400, longer);
  const fs::path out = folder_ / "killed";
  std::vector<std::string> arguments = train_arguments(out, longer);
  arguments.push_back("--resume");
  int kills = 0;
  for (int milliseconds = 700; !fs::exists(RunPaths{out}.result()); milliseconds += 137) {
    ASSERT_LT(kills, 60);
    Process process(folder_.path(), arguments);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    process.send(SIGKILL);
    const Finished finished = process.wait();
    ASSERT_TRUE(finished.code == 128 + SIGKILL || finished.code == 0) << finished.error;
    kills += finished.code == 0 ? 0 : 1;
  }
  EXPECT_GT(kills, 1);
  EXPECT_EQ(file_bytes(RunPaths{out}.checkpoint(400)), expected);
}

TEST_F(Program, SigtermSavesFirst) {
  const std::vector<std::string> longer{"--steps", "400", "--checkpoint-every", "0"};
  const std::string expected = uninterrupted(400, longer);
  const fs::path out = folder_ / "stopped";
  Process process(folder_.path(), train_arguments(out, longer));
  wait_for_metrics({out}, process);
  process.send(SIGTERM);
  const Finished stopped = process.wait();
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.error;
  EXPECT_NE(stopped.out.find("continue with: lowtide train --resume"), std::string::npos) << stopped.out;
  EXPECT_EQ(checkpoint_steps(RunPaths{out}).size(), 1u);
  EXPECT_EQ(run({"train", "--resume", out.string()}).code, 0);
  EXPECT_EQ(file_bytes(RunPaths{out}.checkpoint(400)), expected);
}

TEST_F(Program, FullDiskLosesNothing) {
  const std::string expected = uninterrupted(40, {});
  const fs::path out = folder_ / "full";
  // A checkpoint of this network takes 0.6 MB: none fits.
  const auto no_more = [] {
    const rlimit limit{300'000, 300'000};
    setrlimit(RLIMIT_FSIZE, &limit);
  };
  expect_mistake(train_arguments(out), "File too large; free some space", no_more);
  EXPECT_TRUE(checkpoint_steps(RunPaths{out}).empty());
  const Finished resumed = run(train_arguments(out, {"--resume"}));
  EXPECT_EQ(resumed.code, 0) << resumed.error;
  EXPECT_EQ(file_bytes(RunPaths{out}.checkpoint(40)), expected);
}

TEST_F(Program, EvaluatesACheckpointAsTheRunDid) {
  const fs::path out = folder_ / "run";
  ASSERT_EQ(run(train_arguments(out)).code, 0);
  const Json result = read_run_file(RunPaths{out}.result());
  const std::string checkpoint = RunPaths{out}.checkpoint(40).string();
  const Finished test = run({"eval", "--checkpoint", checkpoint, "--json"});
  ASSERT_EQ(test.code, 0) << test.error;
  EXPECT_EQ(Json::parse(test.out).at("accuracy"), result.at("test"));
  EXPECT_EQ(Json::parse(test.out).at("eval_bits"), 8);
  const Finished valid = run({"eval", "--checkpoint", checkpoint, "--split", "valid", "--json"});
  EXPECT_EQ(Json::parse(valid.out).at("accuracy"), result.at("valid"));
  const Finished coarse = run({"eval", "--checkpoint", checkpoint, "--eval-bits", "2", "--json"});
  EXPECT_NE(Json::parse(coarse.out).at("loss"), Json::parse(test.out).at("loss"));
}

TEST_F(Program, ComparesFinishedRuns) {
  ASSERT_EQ(run(train_arguments(folder_ / "a")).code, 0);
  ASSERT_EQ(run(train_arguments(folder_ / "b", {"--schedule", "fp32"})).code, 0);
  const Finished table = run({"compare", (folder_ / "a").string(), (folder_ / "b").string(), "--json"});
  ASSERT_EQ(table.code, 0) << table.error;
  const Json runs = Json::parse(table.out);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].at("schedule"), "CR 3:8 n=4 grad=8");
  EXPECT_DOUBLE_EQ(runs[1].at("relative_cost").get<double>(), 1.0);
  expect_mistake({"compare", (folder_ / "a").string(), "--count", "both"}, "count is 'both'");
}

TEST_F(Program, TheFinalLineTellsBothCounts) {
  const std::vector<std::string> mixed{"--layer-bits", "*.shortcut=fp32"};
  const Finished cost = run([&] {
    std::vector<std::string> arguments{"cost", "--recipe", recipe_.string(), "--json"};
    arguments.insert(arguments.end(), mixed.begin(), mixed.end());
    return arguments;
  }());
  ASSERT_EQ(cost.code, 0) << cost.error;
  const Json planned = Json::parse(cost.out);
  const double paper = planned.at("relative_cost"), actual = planned.at("relative_cost_actual");
  EXPECT_GT(actual, 1.2 * paper);
  EXPECT_LT(planned.at("saving_actual").get<double>(), planned.at("saving").get<double>());
  EXPECT_EQ(planned.at("saving_against"), "static 8 grad=8");
  const fs::path out = folder_ / "mixed";
  const Finished trained = run(train_arguments(out, mixed));
  ASSERT_EQ(trained.code, 0) << trained.error;
  EXPECT_THAT(trained.out, testing::HasSubstr(fmt::format("\ncost {:.4f} of fp32, ", actual)));
  EXPECT_THAT(trained.out, testing::HasSubstr(fmt::format("\ncost {:.4f} of fp32, ", paper)));
  EXPECT_THAT(trained.out, testing::HasSubstr("actual, each layer at the bits it ran at"));
  // The last line of metrics has the same, so far.
  Json last;
  for (const Json& line : read_jsonl(RunPaths{out}.metrics()).lines) {
    if (!line.contains("split")) last = line;
  }
  const Json result = read_run_file(RunPaths{out}.result());
  EXPECT_EQ(last.at("gbitops_actual"), result.at("gbitops").at("actual"));
  EXPECT_EQ(last.at("gbitops_paper"), result.at("gbitops").at("paper"));
}

TEST_F(Program, ASavingIsToldAgainstTheHighestBits) {
  const Finished drawn = run({"schedule", "delayed 377 at=8 static 5", "--steps", "1000"});
  ASSERT_EQ(drawn.code, 0) << drawn.error;
  // 1 - (377 · 192 + 623 · 105) / (1000 · 192)
  EXPECT_THAT(drawn.out, testing::HasSubstr("saving         28.23 %  against static 8 grad=8\n"));
  const Finished json = run({"schedule", "delayed 50% at=fp32 static 8", "--json"});
  EXPECT_EQ(Json::parse(json.out).at("saving_against"), "fp32");
}

TEST_F(Program, WhatAClosedLoopWillDoIsToldAsItsPlan) {
  const Finished drawn =
      run({"schedule", "price 3:8", "--budget", "0.63", "--every", "50", "--steps", "2000"});
  ASSERT_EQ(drawn.code, 0) << drawn.error;
  EXPECT_THAT(drawn.out, testing::HasSubstr("price 3:8 grad=8 every=50 budget=0.63, 2000 steps"));
  EXPECT_THAT(drawn.error, testing::HasSubstr("note: price decides while it trains; told as it plans to"));
  const Finished cost =
      run({"cost", "--recipe", recipe_.string(), "--schedule", "price 3:8 every=5 budget=0.63", "--json"});
  ASSERT_EQ(cost.code, 0) << cost.error;
  EXPECT_THAT(cost.error, testing::HasSubstr("note: price decides while it trains"));
  // 0.63 of 192 of 3072, less 6 probes of 7² + 8² at most and a step's change in 40 steps.
  EXPECT_NEAR(Json::parse(cost.out).at("relative_cost").get<double>(), (0.63 * 192 - 6 * 113.0 / 40) / 3072,
              192.0 / 40 / 3072);
  const Finished water = run(
      {"cost", "--recipe", recipe_.string(), "--schedule", "waterfill 3:8 every=5 budget=0.63", "--json"});
  ASSERT_EQ(water.code, 0) << water.error;
  EXPECT_THAT(water.error,
              testing::HasSubstr("note: waterfill decides while it trains; told as it plans to"));
  EXPECT_NEAR(Json::parse(water.out).at("relative_cost").get<double>(), 0.63 * 192 / 3072, 31.0 / 40 / 3072);
  const Finished climbs = run({"schedule", "progressive 3,4,8"});
  EXPECT_THAT(climbs.error, testing::HasSubstr("note: progressive decides while it trains; told as if"));
}

TEST_F(Program, ToldApartAreTheLastAndTheBest) {
  const fs::path out = folder_ / "run";
  const Finished trained = run(train_arguments(out, {"--keep-best"}));
  ASSERT_EQ(trained.code, 0) << trained.error;
  const Json result = read_run_file(RunPaths{out}.result()), best = result.at("best");
  EXPECT_THAT(trained.out, testing::HasSubstr("\nlast, step 40: accuracy "));
  EXPECT_THAT(trained.out, testing::HasSubstr("\nbest, step " + std::to_string(best.at("step").get<int>()) +
                                              ": accuracy "));
  const Finished test = run({"eval", "--checkpoint", RunPaths{out}.best().string(), "--json"});
  ASSERT_EQ(test.code, 0) << test.error;
  EXPECT_EQ(Json::parse(test.out).at("accuracy"), best.at("test"));
  EXPECT_EQ(Json::parse(test.out).at("step"), best.at("step"));
  expect_mistake({"train", "--resume", out.string(), "--eval-every", "5"},
                 "eval-every is 13 in the run, but 5 was asked for");
  expect_mistake(train_arguments(folder_ / "none", {"--keep-best", "--validation", "0"}), "--validation");
}

TEST_F(Program, GoesOnWithMoreStepsWhereItsScheduleAllows) {
  const std::vector<std::string> fixed{"--schedule", "static",      "--lr-schedule",
                                       "constant",   "--log-every", "10"};
  const fs::path out = folder_ / "run";
  std::vector<std::string> more = fixed;
  more.insert(more.end(), {"--steps", "60"});
  const std::string expected = uninterrupted(60, more);
  ASSERT_EQ(run(train_arguments(out, fixed)).code, 0);
  expect_mistake({"train", "--resume", out.string(), "--steps", "20"}, "not with fewer");
  const Finished longer = run({"train", "--resume", out.string(), "--steps", "60"});
  ASSERT_EQ(longer.code, 0) << longer.error;
  EXPECT_THAT(longer.out, testing::HasSubstr("goes on from 40 to 60 steps"));
  EXPECT_EQ(file_bytes(RunPaths{out}.checkpoint(60)), expected);
  EXPECT_EQ(read_run_file(RunPaths{out}.result()).at("steps"), 60);
  EXPECT_THAT(run({"train", "--resume", out.string()}).out, testing::HasSubstr("is finished already"));

  const fs::path cyclic = folder_ / "cyclic";
  ASSERT_EQ(run(train_arguments(cyclic)).code, 0);
  expect_mistake({"train", "--resume", cyclic.string(), "--steps", "60"}, "cannot go on from 40 to 60 steps");
}

TEST_F(Program, UnderstandsTheOriginalProgramsFlags) {
  const Finished config =
      run({"train", "--recipe", recipe_.string(), "--is_cyclic_precision", "--cyclic_num_bits_schedule", "4",
           "6", "--cyclic_num_grad_bits_schedule", "6", "6", "--num_cyclic_period", "32", "--print-config"});
  ASSERT_EQ(config.code, 0) << config.error;
  for (const std::string line : {"schedule = \"CR\"", "bits = \"4:6\"", "grad-bits = \"6\"", "cycles = 32"}) {
    EXPECT_NE(config.out.find("\n" + line + "\n"), std::string::npos) << config.out;
  }
  const Finished fixed = run({"train", "--recipe", recipe_.string(), "--num_bits", "6", "--print-config"});
  EXPECT_NE(fixed.out.find("schedule = \"static\"\nbits = \"6\"\n"), std::string::npos) << fixed.out;
}

TEST_F(Program, PrintedConfigIsARecipe) {
  const std::vector<std::string> flags{"--layer-bits", "conv1=8", "*.shortcut=fp32", "--mean",
                                       "0.5",          "--flip",  "--print-config"};
  std::vector<std::string> arguments{"train", "--recipe", recipe_.string()};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const Finished printed = run(arguments);
  ASSERT_EQ(printed.code, 0) << printed.error;
  const fs::path again = folder_ / "again.toml";
  std::ofstream(again) << printed.out;
  EXPECT_EQ(run({"train", "--recipe", again.string(), "--print-config"}).out, printed.out);
}

// Steps count where a recipe has both; the file has steps.
TEST_F(Program, EpochsOfAFlagWinOverStepsOfTheFile) {
  const Finished printed = run({"train", "--recipe", recipe_.string(), "--epochs", "3", "--print-config"});
  EXPECT_NE(printed.out.find("steps = 0\n"), std::string::npos) << printed.out << printed.error;
  EXPECT_NE(printed.out.find("epochs = 3.0\n"), std::string::npos) << printed.out;
}

TEST_F(Program, CostNeedsNoTraining) {
  const Finished cost = run({"cost", "--recipe", recipe_.string(), "--schedule", "fp32", "--json"});
  ASSERT_EQ(cost.code, 0) << cost.error;
  const Json json = Json::parse(cost.out);
  EXPECT_DOUBLE_EQ(json.at("relative_cost").get<double>(), 1.0);
  EXPECT_EQ(json.at("steps"), 40);
}

TEST_F(Program, ModelsOfEveryTaskAreListed) {
  const Finished models = run({"models", "--json"});
  ASSERT_EQ(models.code, 0) << models.error;
  std::map<std::string, Json> rows;
  for (const Json& row : Json::parse(models.out)) rows[row.at("model").get<std::string>()] = row;
  for (const char* name :
       {"cifar-resnet20", "retinanet18", "lstm", "transformer", "bert", "gcn", "sage", "gat"}) {
    ASSERT_TRUE(rows.contains(name)) << name;
  }
  // By hand: embedding and decoder of 10,000 words, one layer of 800 units with four gates; MACs are those of a word.
  EXPECT_EQ(rows["lstm"].at("parameters"), 2 * 8'000'000 + 10'000 + 4 * 800 * (800 + 800 + 1));
  EXPECT_EQ(rows["lstm"].at("macs"), 8'000'000 + 4 * 800 * (800 + 800));
  EXPECT_EQ(rows["gcn"].at("macs"), 128 * 512 + 512 * 512 + 512 * 40);
  EXPECT_EQ(rows["sage"].at("macs"), 2 * (100 * 512 + 512 * 47));
  // 12 layers of 4 · 768² + 2 · 768 · 3,072 for each of 128 pieces, twice 128² · 768 of attention, pooler and classifier.
  EXPECT_EQ(rows["bert"].at("macs"),
            std::int64_t{12} * (128 * (4 * 768 * 768 + 2 * 768 * 3072) + 2 * 128 * 128 * 768) + 768 * 768 +
                768 * 3);
}

TEST_F(Program, ArxivNeedNotBeThereToBeCounted) {
  const fs::path recipe = fs::path(LOWTIDE_SOURCE_DIR) / "recipes" / "ogbn-arxiv-gcn.toml";
  const Finished cost = run({"cost", "--recipe", recipe.string(), "--data-dir",
                             (folder_ / "ogbn_arxiv").string(), "--hidden", "16", "--json"});
  ASSERT_EQ(cost.code, 0) << cost.error;
  const Json json = Json::parse(cost.out);
  EXPECT_EQ(json.at("items_per_step"), 169'343);
  EXPECT_THAT(json.at("assumed").get<std::string>(), testing::HasSubstr("as large as OGBN-Arxiv"));
}

TEST_F(Program, BenchTimesARecipeWithChanges) {
  const Finished bench = run({"bench", "step", "--recipe", recipe_.string(), "--batch", "2", "--repeat", "1",
                              "--engines", "fp32", "--seed", "5", "--json"});
  ASSERT_EQ(bench.code, 0) << bench.error;
  const Json json = Json::parse(bench.out);
  EXPECT_EQ(json.at("items_per_step"), 2);
  EXPECT_GT(json.at("engines").at("fp32").at("ms").get<double>(), 0);
  EXPECT_FALSE(json.at("engines").at("fp32").at("tf32").get<bool>()) << "of a GPU alone";
  EXPECT_FALSE(json.at("data").get<std::string>().empty());
  expect_mistake({"bench", "step", "--recipe", recipe_.string(), "--nosuch", "1"}, "--nosuch");
  expect_mistake({"bench", "step", "--data-dir", "x"}, "--data-dir is not known without --recipe");
}

TEST_F(Program, MistakesAreOneLineAndExitCode2) {
  const std::string recipe = recipe_.string();
  const std::string out = (folder_ / "never").string();
  expect_mistake({"trian"}, "unknown command 'trian'");
  expect_mistake({"train", "--recipe", "/nowhere.toml"}, "/nowhere.toml");
  expect_mistake({"train", "--recipe", recipe, "--out", out, "--model", "resnet19"},
                 "unknown model 'resnet19'");
  expect_mistake({"train", "--recipe", recipe, "--out", out, "--schedule", "XX"}, "XX");
  expect_mistake({"train", "--recipe", recipe, "--out", out, "--bits", "8:3"}, "8");
  expect_mistake({"train", "--recipe", recipe, "--out", out, "--schedule", "CT", "--cycles", "3"}, "even");
  expect_mistake({"train", "--recipe", recipe, "--out", out, "--engine", "abacus"},
                 "unknown engine 'abacus'");
  expect_mistake({"train", "--recipe", recipe, "--out", out, "--lr", "-1"}, "lr is -1");
  expect_mistake({"train", "--recipe", recipe, "--out", out, "--layer-bits", "nosuch=8"}, "matches no layer");
  expect_mistake({"train", "--recipe", recipe, "--out", out, "--decay-layers", "nosuch"}, "matches no layer");
  expect_mistake({"train", "--recipe", recipe, "--out", out, "--data-dir", "/nowhere"}, "/nowhere");
  expect_mistake({"train", "--recipe", recipe, "--nosuch", "1"}, "--nosuch");
  expect_mistake({"train", "--resume", out}, "no run to resume");
  expect_mistake({"compare", folder_.path().string()}, "not a run folder");
  expect_mistake({"eval", "--checkpoint", recipe}, "small.toml");
  expect_mistake({"bench", "leap"}, "benchmark is 'leap'");
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(Program, RefusesToMixRuns) {
  const fs::path out = folder_ / "run";
  ASSERT_EQ(run(train_arguments(out)).code, 0);
  expect_mistake(train_arguments(out), "holds a run already");
  fs::remove(RunPaths{out}.result());
  expect_mistake(train_arguments(out, {"--resume", "--lr", "0.01"}),
                 "lr is 0.05 in the run, but 0.01 was asked for");
  expect_mistake({"train", "--resume", out.string(), "--seed", "5"},
                 "seed is 1 in the run, but 5 was asked for");
  Json run_json = read_run_file(RunPaths{out}.run());
  run_json["format"] = 9;
  std::ofstream(RunPaths{out}.run()) << run_json;
  expect_mistake(train_arguments(out, {"--resume"}), "format 9");
  std::ofstream(RunPaths{out}.run()) << "{\"format\":";
  expect_mistake(train_arguments(out, {"--resume"}), "run.json");
}

TEST_F(Program, DamagedCheckpointIsNamed) {
  const fs::path out = folder_ / "run";
  ASSERT_EQ(run(train_arguments(out)).code, 0);
  fs::remove(RunPaths{out}.result());
  fs::resize_file(RunPaths{out}.checkpoint(40), 1000);
  expect_mistake(train_arguments(out, {"--resume"}), "step-00000040.safetensors");
  expect_mistake(train_arguments(out, {"--resume"}), "; or remove it, and the run goes on from step 36");
  fs::remove(RunPaths{out}.checkpoint(40));
  EXPECT_EQ(run(train_arguments(out, {"--resume"})).code, 0);
}

TEST_F(Program, UnknownKeyInARecipeIsNamed) {
  std::ofstream(recipe_, std::ios::app) << "colour = \"blue\"\n";
  expect_mistake({"train", "--recipe", recipe_.string(), "--print-config"}, "colour");
}

TEST_F(Program, HelpAndVersion) {
  for (const std::string command : {"train", "eval", "compare", "schedule", "cost", "models", "bench"}) {
    const Finished help = run({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_NE(help.out.find("--help"), std::string::npos) << command;
  }
  EXPECT_EQ(run({"--version"}).out.rfind("lowtide ", 0), 0u);
}

}  // namespace
}  // namespace lowtide
