// One run by several processes: the same bytes whatever their number, and what happens when one of them fails.
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdlib>

#include "lowtide/io/file.h"
#include "lowtide/io/jsonl.h"
#include "lowtide/study/command.h"
#include "tests/cli/program.h"
#include "tests/cli/small_data.h"
#include "tests/data/detection/small_voc.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;
using Flags = std::vector<std::string>;

class RanksProgram : public Program {
 protected:
  Flags images(const Flags& more = {}, const std::string& steps = "9") const {
    Flags flags{"train", "--recipe", recipe_.string(), "--steps", steps, "--shards", "4"};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }

  // The last checkpoint, the metrics without their times, and the result.
  std::string trained(Flags flags, const std::string& name, const Flags& more) {
    const RunPaths run{folder_ / name};
    flags.insert(flags.end(), {"--out", run.folder.string()});
    flags.insert(flags.end(), more.begin(), more.end());
    const Finished finished = this->run(flags);
    EXPECT_EQ(finished.code, 0) << finished.error;
    return finished.code == 0 ? bytes_of(run) : name + " failed";
  }

  static std::string bytes_of(const RunPaths& run) {
    std::string bytes = file_bytes(run.checkpoint(checkpoint_steps(run).back()));
    for (Json line : read_jsonl(run.metrics()).lines) {
      line.erase("seconds");
      line.erase("items_per_s");
      line.erase("took");
      line.erase("step_took");
      bytes += line.dump() + "\n";
    }
    return bytes + read_run_file(run.result()).at("test").dump();
  }

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

  // A process as torchrun would start it.
  static std::function<void()> as_rank(int rank, int size, int port) {
    return [=] {
      setenv("RANK", std::to_string(rank).c_str(), 1);
      setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
      setenv("MASTER_ADDR", "127.0.0.1", 1);
      setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
    };
  }

  // Ports of this process's own: several tests run at once. Below those that Linux gives to connections.
  static int some_port(int offset) { return 20000 + (getpid() * 16 + offset) % 12000; }

  static int port_of(const FileDescriptor& server) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    getsockname(server.number(), reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }

  // Each with output in a folder of its own.
  std::vector<Process> started_ranks(const Flags& flags, int port, int size) {
    std::vector<Process> processes;
    for (int rank = 0; rank < size; ++rank) {
      const fs::path place = folder_ / fmt::format("rank{}", rank);
      fs::create_directories(place);
      processes.emplace_back(place, flags, as_rank(rank, size, port));
    }
    return processes;
  }
};

TEST_F(RanksProgram, ImagesHaveTheSameBytesOnAnyNumberOfRanks) {
  for (const char* engine : {"simulated", "integer"})
    expect_same_on_ranks(engine, {"2", "4"}, images({"--layer-stats", "3"}));
}

TEST_F(RanksProgram, AClosedLoopDecidesTheSameOnAnyNumberOfRanks) {
  expect_same_on_several_ranks(images({"--schedule", "price 3:8 every=2 budget=0.63"}));
  expect_same_on_several_ranks(
      images({"--schedule", "waterfill 3:8 every=2 budget=0.63", "--layer-bits", "group3.0.conv1=8"}),
      "waterfill");
}

TEST_F(RanksProgram, SoHaveAveragesAndTheBestEvaluation) {
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

TEST_F(RanksProgram, ShardsThatAreNoPowerOfTwoToo) {
  const Flags flags{"train",    "--recipe", recipe_.string(), "--steps", "6", "--batch", "12",
                    "--shards", "6",        "--engine",       "integer"};
  const std::string one = trained(flags, "one", {});
  EXPECT_EQ(trained(flags, "two", {"--ranks", "2"}), one);
  EXPECT_EQ(trained(flags, "three", {"--ranks", "3"}), one);
}

TEST_F(RanksProgram, LanguageCarriesItsStateInTheBatchsOrder) {
  write_text(folder_ / "text");
  for (const std::string model : {"lstm", "transformer"})
    expect_same_on_several_ranks(language(model, "8"), model);
}

TEST_F(RanksProgram, EntailmentWithBatchesSmallerThanTheShards) {
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

TEST_F(RanksProgram, DetectionOfObjects) {
  write_small_voc(folder_ / "voc");
  const std::string dir = (folder_ / "voc").string();
  const Flags flags{
      "train",   "--data",   "voc",        "--data-dir", dir,       "--train-set", "train:4",  "--test-set",
      "train:4", "--resize", "40",         "--max-size", "64",      "--flip",      "--model",  "retinanet18",
      "--bits",  "5:8",      "--cycles",   "2",          "--steps", "2",           "--batch",  "2",
      "--lr",    "0.001",    "--momentum", "0",          "--clip",  "0.1",         "--shards", "2"};
  expect_same_on_several_ranks(flags, "", "2");
}

TEST_F(RanksProgram, NodesWithNeighboursThatAreDrawn) {
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

TEST_F(RanksProgram, OneShardHasTheBytesOfARunThatKnowsOfNone) {
  const RunPaths run{folder_ / "one"};
  const Flags flags{"train", "--recipe", recipe_.string(), "--steps", "6"};
  EXPECT_EQ(trained(flags, "one", {"--shards", "1"}), trained(flags, "none", {}));
  EXPECT_EQ(file_bytes(run.checkpoint(6)).find("shards"), std::string::npos);
  EXPECT_NE(trained(flags, "two", {"--shards", "2"}), bytes_of(run));
}

TEST_F(RanksProgram, GoesOnWithAnotherNumberOfRanks) { expect_to_go_on(images({"--engine", "simulated"})); }

// The state of an LSTM too, of which every rank has a part.
TEST_F(RanksProgram, SoDoesAnLstm) {
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

// A run that two ranks see under two names, and one of them not as the other.
class RanksApart : public RanksProgram {
 protected:
  RanksApart() {
    trained(images({"--checkpoint-every", "3"}), "here", {});
    fs::copy(here_.folder, there_.folder, fs::copy_options::recursive);
  }

  void expect_noticed(const std::string& what, int port) {
    fs::create_directories(folder_ / "rank1");
    Process second(folder_ / "rank1", {"train", "--resume", there_.folder.string()}, as_rank(1, 2, port));
    const Finished first = run({"train", "--resume", here_.folder.string()}, as_rank(0, 2, port));
    const std::string told = first.error + second.wait().error;
    EXPECT_NE(first.code, 0);
    EXPECT_NE(told.find(what), std::string::npos) << told;
    EXPECT_NE(told.find("ranks need a file system that all of them see"), std::string::npos) << told;
    EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  }

  const RunPaths here_{folder_ / "here"}, there_{folder_ / "there"};
};

TEST_F(RanksApart, NoticeACheckpointThatOneDoesNotSee) {
  for (const RunPaths& run : {here_, there_}) fs::remove(run.result());
  fs::remove(there_.checkpoint(9));
  expect_noticed("rank 1 sees no ", some_port(4));
}

TEST_F(RanksApart, NoticeAnEndThatOneDoesNotSee) {
  fs::remove(there_.result());
  expect_noticed("rank 0 sees a finished run, rank 1 a run that is not finished", some_port(6));
}

TEST_F(RanksApart, NoticeARunThatOneDoesNotSee) {
  fs::remove(here_.result());
  fs::remove_all(there_.folder);
  expect_noticed("there holds no run to resume", some_port(7));
}

TEST_F(RanksProgram, WrongVariablesAreNamed) {
  const Flags flags = images({"--out", (folder_ / "run").string()});
  const auto set = [](const char* name, const char* value) { return [=] { setenv(name, value, 1); }; };
  expect_mistake(flags, "WORLD_SIZE is not set, though others of torchrun's variables are", set("RANK", "1"));
  expect_mistake(flags, "RANK is '5'; expected a number from 0 to 1", as_rank(5, 2, some_port(1)));
  expect_mistake(flags, "rank 1 knows no address of 'no.such.machine.invalid', where rank 0 is said to be",
                 [] {
                   as_rank(1, 2, some_port(1))();
                   setenv("MASTER_ADDR", "no.such.machine.invalid", 1);
                 });
}

TEST_F(RanksProgram, APortThatIsTakenIsNamed) {
  const FileDescriptor server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(listen(server.number(), 1), 0);  // at a port that is free
  const int port = port_of(server);
  expect_mistake(images({"--out", (folder_ / "run").string()}),
                 fmt::format("rank 0 cannot wait for the others at port {}, which another process has", port),
                 as_rank(0, 2, port));
}

// As of a rank 0 that ends while the others wait for what it has to say: what c10d's store asks first is answered, nothing after.
TEST_F(RanksProgram, AStoreThatGoesAwayIsNamed) {
  const FileDescriptor server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(listen(server.number(), 1), 0);
  std::jthread store([&] {
    accept4(server.number(), nullptr, nullptr, SOCK_CLOEXEC);  // by which the rank sees that somebody listens
    const FileDescriptor rank(accept(server.number(), nullptr, nullptr));
    const timeval quiet{.tv_sec = 1, .tv_usec = 0};
    setsockopt(rank.number(), SOL_SOCKET, SO_RCVTIMEO, &quiet, sizeof(quiet));
    std::array<char, 4096> asked{};
    const auto hear = [&] {
      while (recv(rank.number(), asked.data(), asked.size(), 0) > 0) {
      }
    };
    hear();
    const std::int64_t count = 1;
    send(rank.number(), &count, sizeof(count), MSG_NOSIGNAL);
    hear();
  });
  const int port = port_of(server);
  expect_mistake(images({"--out", (folder_ / "run").string()}), fmt::format("at 127.0.0.1:{}", port),
                 as_rank(1, 2, port));
}

TEST_F(RanksProgram, OneThatCannotConnectEndsTheOthers) {
  const Flags flags = images({"--out", (folder_ / "run").string()});
  const int port = some_port(8);
  fs::create_directories(folder_ / "rank1");
  Process second(folder_ / "rank1", flags, [=] {
    as_rank(1, 2, port)();
    setenv("GLOO_SOCKET_IFNAME", "no-such-network", 1);
  });
  const auto before = std::chrono::steady_clock::now();
  const Finished first = run(flags, as_rank(0, 2, port)), told = second.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(30));
  EXPECT_EQ(first.code, 1);
  EXPECT_EQ(first.error, "");
  EXPECT_EQ(told.code, 2);
  EXPECT_NE(told.error.find("lowtide: rank 1 cannot connect to the others: "), std::string::npos)
      << told.error;
  EXPECT_NE(told.error.find("GLOO_SOCKET_IFNAME names the network interface"), std::string::npos);
}

TEST_F(RanksProgram, WhatOneRankCannotDoIsToldOnce) {
  const Flags wrong = images({"--out", (folder_ / "run").string(), "--ranks", "4"});
  std::vector<Process> ranks = started_ranks(wrong, some_port(2), 2);
  std::string told;
  for (Process& rank : ranks) {
    const Finished finished = rank.wait();
    EXPECT_NE(finished.code, 0);
    told += finished.error;
  }
  EXPECT_EQ(told, "lowtide: rank 0: ranks is 4, but 2 were started; leave it out, or start as many\n");
}

TEST_F(RanksProgram, WhatTheyDoTogetherIsTheSameOnAll) {
  const Flags flags = images({"--out", (folder_ / "run").string()});
  Flags other = flags;
  other.insert(other.end(), {"--layer-stats", "2"});
  const int port = some_port(14);
  fs::create_directories(folder_ / "rank1");
  Process second(folder_ / "rank1", other, as_rank(1, 2, port));
  const Finished first = run(flags, as_rank(0, 2, port));
  const std::string told = first.error + second.wait().error;
  EXPECT_NE(first.code, 0);
  EXPECT_NE(told.find("layer-stats is 0 on rank 0 and 2 on rank 1; start all ranks with one recipe"),
            std::string::npos)
      << told;
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
}

// One that was started otherwise than the others: they end with it, whatever it is that it cannot do.
TEST_F(RanksProgram, WhatOneRankFindsWrongBeforeItTrainsEndsAll) {
  const Flags right = images({"--out", (folder_ / "run").string()});
  const std::pair<Flags, std::string> wrong[]{{{"--no-such-flag"}, "unknown option '--no-such-flag'"},
                                              {{"--threads", "5000"}, "threads is 5000; expected"},
                                              {{"--schedule", "none"}, "schedule 'none'"}};
  int port = some_port(10);
  fs::create_directories(folder_ / "rank1");
  for (const auto& [flags, message] : wrong) {
    Flags all = right;
    all.insert(all.end(), flags.begin(), flags.end());
    const auto before = std::chrono::steady_clock::now();
    Process second(folder_ / "rank1", all, as_rank(1, 2, port));
    const Finished first = run(right, as_rank(0, 2, port)), told = second.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(30));
    EXPECT_EQ(first.code, 1);
    EXPECT_EQ(first.error, "");
    EXPECT_EQ(told.code, 2);
    EXPECT_TRUE(told.error.starts_with("lowtide: rank 1: ")) << told.error;
    EXPECT_NE(told.error.find(message), std::string::npos) << told.error;
    EXPECT_EQ(std::count(told.error.begin(), told.error.end(), '\n'), 1) << told.error;
    ++port;
  }
}

TEST_F(RanksProgram, ARunThatAnotherProcessHasIsNoMistake) {
  const RunPaths run{folder_ / "run"};
  fs::create_directories(run.folder);
  const Lease held = take_run(run);
  for (const char* ranks : {"1", "2"}) {
    const Finished refused = this->run(images({"--out", run.folder.string(), "--ranks", ranks}));
    EXPECT_EQ(refused.code, 75);
    EXPECT_NE(refused.error.find("another process is writing this run, process "), std::string::npos);
    EXPECT_EQ(std::count(refused.error.begin(), refused.error.end(), '\n'), 1) << refused.error;
  }
}

TEST_F(RanksProgram, RefusesRanksAndShardsThatDoNotFit) {
  const std::string out = (folder_ / "run").string();
  expect_mistake(images({"--out", out, "--ranks", "3"}), "ranks is 3; expected a divisor of shards, 4");
  expect_mistake({"train", "--recipe", recipe_.string(), "--shards", "3", "--out", out},
                 "shards is 3; expected a divisor of batch, 20");
  expect_mistake({"train", "--recipe", recipe_.string(), "--ranks", "2", "--out", out},
                 "ranks is 2; expected a divisor of shards, 1");
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

// The processes of a run that was started here, by rank.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", parent));
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

// A run that is not done before something happens to it.
class LongRun : public RanksProgram {
 protected:
  Flags flags(const std::string& steps = "100000", const Flags& more = {}) const {
    Flags flags = images({"--checkpoint-every", "5", "--log-every", "5"}, steps);
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }

  const fs::path out_ = folder_ / "run";
};

TEST_F(LongRun, OfWhichARankIsKilledEndsWithinSeconds) {
  Process process(folder_.path(), flags("100000", {"--ranks", "4", "--out", out_.string()}));
  wait_for_metrics({out_}, process);
  const std::vector<pid_t> ranks = children_of(process.pid());
  ASSERT_EQ(ranks.size(), 4u);
  const auto before = std::chrono::steady_clock::now();
  kill(ranks[2], SIGKILL);
  const Finished finished = process.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));
  EXPECT_EQ(finished.code, 1);
  EXPECT_EQ(
      finished.error,
      "lowtide: rank 2 was killed by signal 9 (Killed); the others stop, and the last checkpoint is whole\n");
  const Finished evaluated = run({"eval", out_.string()});
  EXPECT_EQ(evaluated.code, 0) << evaluated.error;
}

TEST_F(LongRun, OfRanksStartedElsewhereNamesTheOneThatIsGone) {
  std::vector<Process> ranks = started_ranks(flags("100000", {"--out", out_.string()}), some_port(3), 2);
  wait_for_metrics({out_}, ranks[0]);
  ranks[1].send(SIGKILL);
  EXPECT_EQ(ranks[1].wait().code, 128 + SIGKILL);
  const Finished first = ranks[0].wait();
  EXPECT_EQ(first.code, 1);
  EXPECT_EQ(first.error,
            "lowtide: rank 1 is gone: it was killed, or its machine is down; the last checkpoint is whole\n");
}

// Its connections stay open: only its silence tells.
TEST_F(LongRun, OfWhichARankIsStoppedEndsWithinSeconds) {
  Process process(folder_.path(), flags("100000", {"--ranks", "2", "--out", out_.string()}));
  wait_for_metrics({out_}, process);
  kill(children_of(process.pid()).at(1), SIGSTOP);
  const Finished finished = process.wait();
  EXPECT_EQ(finished.code, 1);
  EXPECT_EQ(
      finished.error,
      "lowtide: rank 1 has shown no life for 10 s: it is stopped, or its machine is down or cut off; the "
      "last checkpoint is whole\n");
  const Finished evaluated = run({"eval", out_.string()});
  EXPECT_EQ(evaluated.code, 0) << evaluated.error;
}

TEST_F(LongRun, OfRanksStartedElsewhereTellsOfAFirstOneThatIsStopped) {
  std::vector<Process> ranks = started_ranks(flags("100000", {"--out", out_.string()}), some_port(5), 4);
  wait_for_metrics({out_}, ranks[0]);
  ranks[0].send(SIGSTOP);
  std::string told;
  for (const std::size_t rank : {1, 2, 3}) {
    const Finished finished = ranks[rank].wait();
    EXPECT_EQ(finished.code, 1);
    told += finished.error;
  }
  EXPECT_EQ(
      told,
      "lowtide: rank 0 has shown no life for 10 s: it is stopped, or its machine is down or cut off; the "
      "last checkpoint is whole\n");
  ranks[0].send(SIGKILL);
  ranks[0].wait();
}

TEST_F(LongRun, StopsAtOneStepWhenAnyRankIsAskedTo) {
  constexpr const char* kSteps = "80";
  Process process(folder_.path(), flags(kSteps, {"--ranks", "2", "--out", out_.string()}));
  wait_for_metrics({out_}, process);
  kill(children_of(process.pid()).at(1), SIGTERM);
  const Finished stopped = process.wait();
  ASSERT_EQ(stopped.code, 128 + SIGTERM) << stopped.error;
  EXPECT_EQ(stopped.error, "");
  const std::int64_t step = checkpoint_steps({out_}).back();
  EXPECT_NE(stopped.out.find(fmt::format("stopped at step {}", step)), std::string::npos) << stopped.out;
  const Finished resumed = run({"train", "--resume", out_.string(), "--ranks", "4"});
  EXPECT_EQ(resumed.code, 0) << resumed.error;
  EXPECT_EQ(bytes_of({out_}), trained(flags(kSteps), "whole", {}));
}

TEST_F(LongRun, StopsWhenTheOneThatStartedItIsAskedTo) {
  Process process(folder_.path(), flags("100000", {"--ranks", "2", "--out", out_.string()}));
  wait_for_metrics({out_}, process);
  process.send(SIGTERM);
  const Finished stopped = process.wait();
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.error;
  EXPECT_NE(stopped.out.find("stopped at step"), std::string::npos) << stopped.out;
}

TEST_F(LongRun, StopsWhenAnyOfSeveralThatWereLaunchedIsAskedTo) {
  std::vector<Process> ranks = started_ranks(flags("100000", {"--out", out_.string()}), some_port(13), 2);
  wait_for_metrics({out_}, ranks[0]);
  ranks[1].send(SIGTERM);
  for (Process& rank : ranks) {
    const Finished stopped = rank.wait();
    EXPECT_EQ(stopped.code, 128 + SIGTERM);
    EXPECT_EQ(stopped.error, "");
  }
  const std::string line = fmt::format("stopped at step {}", checkpoint_steps({out_}).back());
  EXPECT_NE(file_bytes(folder_ / "rank0/stdout").find(line), std::string::npos) << line;
}

// As a scheduler asks: every process by itself, and who started the ranks passes it on while they are in their step.
TEST_F(LongRun, SavesThoughItIsAskedTwice) {
  Process process(folder_.path(), flags("100000", {"--ranks", "2", "--out", out_.string()}));
  wait_for_metrics({out_}, process);
  const std::vector<pid_t> ranks = children_of(process.pid());
  kill(ranks.at(1), SIGSTOP);  // the step of rank 0 takes as long
  kill(ranks.at(0), SIGTERM);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  process.send(SIGTERM);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  kill(ranks.at(1), SIGCONT);
  const Finished stopped = process.wait();
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.error;
  EXPECT_NE(stopped.out.find("stopped at step"), std::string::npos) << stopped.out;
}

// While the ranks still meet and read data.
TEST_F(LongRun, ThatIsAskedToStopBeforeItTrainsEndsAsBySignals) {
  for (const bool tells_one_rank : {false, true}) {
    Process process(folder_.path(), flags("100000", {"--ranks", "2", "--out", out_.string()}));
    while (children_of(process.pid()).size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    tells_one_rank ? kill(children_of(process.pid())[1], SIGTERM) : kill(process.pid(), SIGTERM);
    const Finished stopped = process.wait();
    EXPECT_EQ(stopped.code, 128 + SIGTERM);
    EXPECT_EQ(stopped.error, "");
  }
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
