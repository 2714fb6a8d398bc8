// What ranks cannot do together is told in one line, and ends all of them.
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>

#include "tests/cli/ranks_program.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

int port_of(const FileDescriptor& server) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  getsockname(server.number(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
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

}  // namespace
}  // namespace lowtide
