// One run by several processes: the same bytes whatever their number, and whoever starts them.
#include "tests/cli/ranks_program.h"

#include "lowtide/study/command.h"
#include "tests/cli/small_data.h"
#include "tests/data/detection/small_voc.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class SameBytes : public RanksProgram {
 protected:
  void expect_same_on_ranks(const std::string& engine, const std::vector<std::string>& ranks,
                            const Flags& flags, const std::string& name = "") {
    const std::string one = trained(flags, name + engine + "1", {"--engine", engine});
    for (const std::string& count : ranks) {
      EXPECT_EQ(trained(flags, name + engine + count, {"--engine", engine, "--ranks", count}), one)
          << engine << " on " << count << " ranks";
    }
  }
  // With both engines.
  void expect_same_on_several_ranks(const Flags& flags, const std::string& name = "",
                                    const std::string& most = "4") {
    expect_same_on_ranks("simulated", {most}, flags, name);
    expect_same_on_ranks("integer", {"2"}, flags, name);
  }

  // A run that was made on four ranks goes on, as if killed after a checkpoint, on any number of them.
  void expect_to_go_on(Flags flags) {
    flags.insert(flags.end(), {"--checkpoint-every", "3", "--keep-checkpoints", "9"});
    const std::string whole = trained(flags, "whole", {});
    const RunPaths run{folder_ / "changed"};
    EXPECT_EQ(trained(flags, "changed", {"--ranks", "4"}), whole);
    const auto resume_after = [&](std::int64_t step, const char* ranks) {
      fs::remove(run.result());
      for (const std::int64_t later : checkpoint_steps(run)) {
        if (later > step) fs::remove(run.checkpoint(later));
      }
      const Finished resumed = this->run({"train", "--resume", run.folder.string(), "--ranks", ranks});
      EXPECT_EQ(resumed.code, 0) << resumed.error;
      EXPECT_EQ(bytes_of(run), whole) << ranks;
    };
    resume_after(6, "2");
    resume_after(3, "1");
    resume_after(6, "4");
  }

  Flags language(const std::string& model, const std::string& steps) const {
    return {"train",
            "--data",
            "ptb",
            "--data-dir",
            (folder_ / "text").string(),
            "--model",
            model,
            "--hidden",
            "8",
            "--heads",
            "2",
            "--steps",
            steps,
            "--batch",
            "4",
            "--length",
            "6",
            "--dropout",
            "0.2",
            "--lr",
            "0.5",
            "--cycles",
            "2",
            "--shards",
            "4",
            "--eval-every",
            "3"};
  }
};

TEST_F(SameBytes, ImagesHaveTheSameBytesOnAnyNumberOfRanks) {
  for (const char* engine : {"simulated", "integer"})
    expect_same_on_ranks(engine, {"2", "4"}, images({"--layer-stats", "3"}));
}

TEST_F(SameBytes, AClosedLoopDecidesTheSameOnAnyNumberOfRanks) {
  expect_same_on_several_ranks(images({"--schedule", "price 3:8 every=2 budget=0.63"}));
  expect_same_on_several_ranks(
      images({"--schedule", "waterfill 3:8 every=2 budget=0.63", "--layer-bits", "group3.0.conv1=8"}),
      "waterfill");
}

TEST_F(SameBytes, SoHaveAveragesAndTheBestEvaluation) {
  const Flags flags = images(
      {"--swa-start", "0.5", "--swa-every", "2", "--keep-best", "--eval-every", "3", "--engine", "integer"});
  const std::string one = trained(flags, "one", {});
  EXPECT_EQ(trained(flags, "two", {"--ranks", "2"}), one);
  for (const char* file : {"averaged", "best"}) {
    const auto in = [&](const char* run) {
      return file_bytes(folder_ / run / "checkpoints" / fmt::format("{}.safetensors", file));
    };
    EXPECT_EQ(in("two"), in("one")) << file;
  }
  EXPECT_EQ(read_run_file(RunPaths{folder_ / "two"}.result()).at("best"),
            read_run_file(RunPaths{folder_ / "one"}.result()).at("best"));
}

TEST_F(SameBytes, ShardsThatAreNoPowerOfTwoToo) {
  const Flags flags{"train",    "--recipe", recipe_.string(), "--steps", "6", "--batch", "12",
                    "--shards", "6",        "--engine",       "integer"};
  const std::string one = trained(flags, "one", {});
  EXPECT_EQ(trained(flags, "two", {"--ranks", "2"}), one);
  EXPECT_EQ(trained(flags, "three", {"--ranks", "3"}), one);
}

TEST_F(SameBytes, LanguageCarriesItsStateInTheBatchsOrder) {
  write_text(folder_ / "text");
  for (const std::string model : {"lstm", "transformer"})
    expect_same_on_several_ranks(language(model, "8"), model);
}

TEST_F(SameBytes, EntailmentWithBatchesSmallerThanTheShards) {
  write_pairs(folder_ / "pairs");
  expect_same_on_several_ranks({"train",
                                "--data",
                                "sick",
                                "--data-dir",
                                (folder_ / "pairs").string(),
                                "--vocabulary",
                                (folder_ / "pairs/vocab.txt").string(),
                                "--model",
                                "bert",
                                "--hidden",
                                "8",
                                "--layers",
                                "1",
                                "--heads",
                                "2",
                                "--feed-forward",
                                "16",
                                "--length",
                                "12",
                                "--steps",
                                "9",
                                "--batch",
                                "4",
                                "--optimizer",
                                "adamw",
                                "--lr",
                                "0.001",
                                "--cycles",
                                "2",
                                "--shards",
                                "4",
                                "--layer-stats",
                                "3"});
}

TEST_F(SameBytes, DetectionOfObjects) {
  write_small_voc(folder_ / "voc");
  const std::string dir = (folder_ / "voc").string();
  const Flags flags{
      "train",   "--data",   "voc",        "--data-dir", dir,       "--train-set", "train:4",  "--test-set",
      "train:4", "--resize", "40",         "--max-size", "64",      "--flip",      "--model",  "retinanet18",
      "--bits",  "5:8",      "--cycles",   "2",          "--steps", "2",           "--batch",  "2",
      "--lr",    "0.001",    "--momentum", "0",          "--clip",  "0.1",         "--shards", "2"};
  expect_same_on_several_ranks(flags, "", "2");
}

TEST_F(SameBytes, NodesWithNeighboursThatAreDrawn) {
  write_papers(folder_ / "papers");
  const Flags graph{"train",
                    "--data",
                    "citation",
                    "--data-dir",
                    (folder_ / "papers").string(),
                    "--node-split",
                    "0.5:0.2",
                    "--model",
                    "sage",
                    "--layers",
                    "2",
                    "--hidden",
                    "8",
                    "--steps",
                    "8",
                    "--optimizer",
                    "adam",
                    "--lr",
                    "0.01",
                    "--dropout",
                    "0.3",
                    "--cycles",
                    "2"};
  Flags drawn = graph;
  drawn.insert(drawn.end(), {"--fan-out", "3", "3", "--batch", "8", "--shards", "4"});
  expect_same_on_several_ranks(drawn);
  Flags whole = graph;
  whole.insert(whole.end(), {"--out", (folder_ / "whole").string(), "--ranks", "2"});
  expect_mistake(whole, "ranks is 2; expected 1: a graph is computed as a whole, by one rank");
}

TEST_F(SameBytes, OneShardHasTheBytesOfARunThatKnowsOfNone) {
  const RunPaths run{folder_ / "one"};
  const Flags flags{"train", "--recipe", recipe_.string(), "--steps", "6"};
  EXPECT_EQ(trained(flags, "one", {"--shards", "1"}), trained(flags, "none", {}));
  EXPECT_EQ(file_bytes(run.checkpoint(6)).find("shards"), std::string::npos);
  EXPECT_NE(trained(flags, "two", {"--shards", "2"}), bytes_of(run));
}

TEST_F(SameBytes, GoesOnWithAnotherNumberOfRanks) { expect_to_go_on(images({"--engine", "simulated"})); }

// The state of an LSTM too, of which every rank has a part.
TEST_F(SameBytes, SoDoesAnLstm) {
  write_text(folder_ / "text");
  expect_to_go_on(language("lstm", "9"));
}

TEST_F(RanksProgram, TheUsualVariablesStartARank) {
  const std::string one = trained(images(), "one", {});
  const fs::path out = folder_ / "two";
  std::vector<Process> ranks = started_ranks(images({"--out", out.string()}), some_port(0), 2);
  for (Process& rank : ranks) {
    const Finished finished = rank.wait();
    ASSERT_EQ(finished.code, 0) << finished.error;
  }
  EXPECT_EQ(bytes_of({out}), one);
  EXPECT_EQ(file_bytes(folder_ / "rank1/stdout"), "");  // rank 0 alone speaks
}

// By the launchers themselves: as many processes, and the bytes of those that the program starts.
class Launchers : public RanksProgram {
 protected:
  void expect_same_bytes(Flags words, const Flags& probe) {
    if (const CommandEnd asked = run_command(probe); asked.code != 0)
      GTEST_SKIP() << probe[0] << " does not run here: " << asked.error;
    const RunPaths run{folder_ / "launched"};
    words.push_back(LOWTIDE_PROGRAM);
    for (const std::string& flag : images({"--out", run.folder.string(), "--threads", "1"}))
      words.push_back(flag);
    const CommandEnd end = run_command(words, std::chrono::minutes(5));
    ASSERT_EQ(end.code, 0) << end.error;
    EXPECT_EQ(bytes_of(run), trained(images(), "local", {"--ranks", "2"}));
  }
};

TEST_F(Launchers, Torchrun) {
  expect_same_bytes(
      {"torchrun", "--no_python", "--nproc_per_node", "2", "--master_port", fmt::to_string(some_port(9)),
       "--redirects", "1", "--tee", "1", "--log_dir", (folder_ / "logs").string()},
      {"torchrun", "--help"});
}

TEST_F(Launchers, Mpirun) {
  expect_same_bytes({"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"},
                    {"mpirun", "--allow-run-as-root", "-n", "1", "true"});
}

class RanksBench : public RanksProgram {
 protected:
  static Flags flags(const std::string& repeat) {
    return {"bench",   "step",     "--model", "cifar-resnet20", "--batch", "4",         "--image-size",
            "16",      "--repeat", repeat,    "--engines",      "integer", "--threads", "2",
            "--ranks", "2",        "--json"};
  }
};

TEST_F(RanksBench, TimesRanksAgainstOneProcess) {
  const Finished finished = run(flags("2"));
  ASSERT_EQ(finished.code, 0) << finished.error;
  const Json told = Json::parse(finished.out);
  for (const char* key : {"ranks", "shards", "threads"}) EXPECT_EQ(told.at(key), 2) << key;
  const Json& timing = told.at("engines").at("integer");
  for (const char* key : {"alone_ms", "ranks_ms", "exchange_ms"}) EXPECT_GT(timing.at(key), 0) << key;
  // ResNet-20's 0.27 million gradients and more, as floats: half of them as they are, half as sums.
  EXPECT_GT(timing.at("sent_bytes"), 4 * 270'000);
  expect_mistake({"bench", "step", "--ranks", "3", "--shards", "4"},
                 "ranks is 3; expected a divisor of shards, 4");
}

TEST_F(RanksBench, TellsOfARankThatIsKilledOnce) {
  Process process(folder_.path(), flags("1000000"));
  while (children_of(process.pid()).size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::seconds(3));  // until they time steps
  kill(children_of(process.pid())[1], SIGKILL);
  const Finished finished = process.wait();
  EXPECT_EQ(finished.code, 1);
  EXPECT_EQ(finished.error, "lowtide: rank 1 was killed by signal 9 (Killed); the others stop\n");
}

}  // namespace
}  // namespace lowtide
