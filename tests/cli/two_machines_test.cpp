// One run by ranks on two machines: network namespaces with a cable between them, each with its own /etc/hosts.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>

#include <cstdlib>

#include "lowtide/io/file.h"
#include "lowtide/study/command.h"
#include "tests/cli/program.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

class TwoMachines : public Program {
 protected:
  void SetUp() override {
    if (getuid() != 0) GTEST_SKIP() << "network namespaces are made as root";
    const bool made = ip({"netns", "add", space("a")}) && ip({"netns", "add", space("b")}) &&
                      ip({"link", "add", cable("a"), "netns", space("a"), "type", "veth", "peer", "name",
                          cable("b"), "netns", space("b")});
    if (!made) GTEST_SKIP() << "no network namespaces here, or no `ip`, which iproute2 has";
    // As Debian has it: at home a machine's name stands for 127.0.1.1.
    set_up("a", "192.168.77.1", "127.0.1.1 first\n192.168.77.2 second\n");
    set_up("b", "192.168.77.2", "192.168.77.1 first\n127.0.1.1 second\n");
  }

  void TearDown() override {
    for (const char* machine : {"a", "b"}) ip({"netns", "del", space(machine)});
  }

  static bool ip(std::vector<std::string> words) {
    words.insert(words.begin(), "ip");
    return run_command(words).code == 0;
  }

  std::string space(const std::string& machine) const { return fmt::format("lowtide-{}-{}", id_, machine); }
  std::string cable(const std::string& machine) const { return fmt::format("lt{}{}", id_, machine); }

  void set_up(const std::string& machine, const std::string& address, const std::string& hosts) {
    ip({"-n", space(machine), "addr", "add", address + "/24", "dev", cable(machine)});
    ip({"-n", space(machine), "link", "set", cable(machine), "up"});
    ip({"-n", space(machine), "link", "set", "lo", "up"});
    std::ofstream(folder_ / (machine + ".hosts")) << "127.0.0.1 localhost\n" << hosts;
  }

  // Two ranks on the first machine, two on the second.
  std::vector<Process> started(const std::vector<std::string>& flags) {
    std::vector<Process> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      const fs::path place = folder_ / fmt::format("rank{}", rank);
      fs::create_directories(place);
      ranks.emplace_back(place, flags, [this, rank] { move_to(rank < 2 ? "a" : "b", rank); });
    }
    return ranks;
  }

  void move_to(const std::string& machine, int rank) const {
    const std::string hosts = folder_ / (machine + ".hosts");
    const FileDescriptor network(open(("/run/netns/" + space(machine)).c_str(), O_RDONLY | O_CLOEXEC));
    if (setns(network.number(), CLONE_NEWNET) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(hosts.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) != 0)
      _exit(98);
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("LOCAL_RANK", std::to_string(rank % 2).c_str(), 1);
    setenv("WORLD_SIZE", "4", 1);
    setenv("MASTER_ADDR", "first", 1);
    setenv("MASTER_PORT", "29500", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
  }

  const fs::path out_ = folder_ / "run";
  const pid_t id_ = getpid();  // names what is the test's own; a rank has another
};

TEST_F(TwoMachines, TrainTheBytesOfOne) {
  std::vector<Process> ranks = started(train_arguments(out_, {"--steps", "6", "--shards", "4"}));
  for (Process& rank : ranks) {
    const Finished finished = rank.wait();
    EXPECT_EQ(finished.code, 0) << finished.error;
  }
  EXPECT_EQ(file_bytes(RunPaths{out_}.checkpoint(6)), uninterrupted(6, {"--steps", "6", "--shards", "4"}));
}

// Each side tells of the other: nobody can say which is left.
TEST_F(TwoMachines, EndWhenTheCableIsCut) {
  std::vector<Process> ranks = started(train_arguments(
      out_, {"--steps", "100000", "--shards", "4", "--log-every", "5", "--checkpoint-every", "5"}));
  wait_for_metrics({out_}, ranks[0]);
  ip({"-n", space("a"), "link", "set", cable("a"), "down"});
  std::vector<std::string> told;
  for (Process& rank : ranks) {
    const Finished finished = rank.wait();
    EXPECT_EQ(finished.code, 1);
    told.push_back(finished.error);
  }
  constexpr const char* kLost =
      "lowtide: rank {} has shown no life for 10 s: it is stopped, or its machine is down or cut off; the "
      "last "
      "checkpoint is whole\n";
  EXPECT_EQ(told[0], fmt::format(kLost, "2, 3"));
  EXPECT_EQ(told[1], "");
  EXPECT_EQ(told[2], fmt::format(kLost, "0"));
  EXPECT_EQ(told[3], "");
  const Finished evaluated = run({"eval", out_.string()});
  EXPECT_EQ(evaluated.code, 0) << evaluated.error;
}

}  // namespace
}  // namespace lowtide
