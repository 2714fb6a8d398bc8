#include "tests/cli/slurm_cluster.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "lowtide/io/file.h"
#include "lowtide/study/command.h"
#include "tests/study/fake_trainer.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

fs::path find_program(const std::string& name) {
  for (const char* folder : {"/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"}) {
    if (fs::exists(fs::path(folder) / name)) return fs::path(folder) / name;
  }
  return {};
}

// Ports that nobody has now.
std::vector<int> free_ports(std::size_t count) {
  std::vector<FileDescriptor> sockets;
  std::vector<int> ports;
  for (std::size_t i = 0; i < count; ++i) {
    sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (bind(sockets.back().number(), any, size) != 0 ||
        getsockname(sockets.back().number(), any, &size) != 0)
      throw std::runtime_error("no free port");
    ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

std::string text_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<pid_t> processes_that(const std::function<bool(const fs::path&)>& fit) {
  std::vector<pid_t> result;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && fit(entry.path())) result.push_back(pid);
  }
  return result;
}

bool has_variable(const fs::path& process, const std::string& variable) {
  const std::string environment = '\0' + text_of_file(process / "environ");
  return environment.find('\0' + variable + '\0') != std::string::npos;
}

bool has_open(const fs::path& process, const fs::path& file) {
  std::error_code gone;
  for (fs::directory_iterator entry(process / "fd", gone), end; !gone && entry != end;
       entry.increment(gone)) {
    if (fs::read_symlink(entry->path(), gone) == file) return true;
  }
  return false;
}

}  // namespace

std::string output_of(const std::string& command) {
  std::istringstream stream(command);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  const CommandEnd end = run_command(words);
  EXPECT_EQ(end.code, 0) << command << ": " << end.error << end.out;
  return end.out;
}

std::string SlurmCluster::missing() {
  if (getuid() != 0) return "SLURM's daemons are started as root";
  for (const char* program : {"munged", "slurmctld", "slurmd", "sbatch", "squeue", "srun"}) {
    if (find_program(program).empty())
      return fmt::format("{} is not installed; scripts/setup.sh tests does", program);
  }
  return "";
}

SlurmCluster::SlurmCluster(const fs::path& folder) : folder_(folder) {
  const std::string configuration = (folder_ / "slurm.conf").string();
  setenv("SLURM_CONF", configuration.c_str(), 1);
  for (const char* name : {"state", "n1", "n2"}) fs::create_directories(folder_ / name);
  std::ofstream(folder_ / "munge.key") << std::string(128, 'k');
  fs::permissions(folder_ / "munge.key", fs::perms::owner_read);
  write_configuration();
  const auto file = [&](const char* name) { return (folder_ / name).string(); };
  start(
      "munge", "munged",
      {"--foreground", "--force", "--key-file", file("munge.key"), "--socket", file("munge.socket"),
       "--pid-file", file("munge.pid"), "--log-file", file("munge.log"), "--seed-file", file("munge.seed")});
  EXPECT_TRUE(comes_true([&] { return fs::exists(folder_ / "munge.socket"); }));
  start("controller", "slurmctld", {"-D", "-f", configuration});
  for (const char* node : {"n1", "n2"}) start(node, "slurmd", {"-D", "-N", node, "-f", configuration});
  EXPECT_TRUE(comes_true([] {
    return run_command({"sinfo", "-h", "-t", "idle", "-o", "%D", "-p", "low"}).out == "2\n";
  })) << text_of_file(folder_ / "slurmctld.log");
}

SlurmCluster::~SlurmCluster() {
  for (const char* node : {"n1", "n2"}) kill_node(node);
  while (!daemons_.empty()) daemons_.pop_back();
  unsetenv("SLURM_CONF");
}

void SlurmCluster::write_configuration() const {
  const std::vector<int> ports = free_ports(3);
  std::ofstream(folder_ / "slurm.conf") << fmt::format(
      R"(ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={1}
AuthType=auth/munge
AuthInfo=socket={0}/munge.socket
CredType=cred/munge
SlurmUser=root
StateSaveLocation={0}/state
SlurmdSpoolDir={0}/%n
SlurmctldPidFile={0}/slurmctld.pid
SlurmdPidFile={0}/%n.pid
SlurmctldLogFile={0}/slurmctld.log
SlurmdLogFile={0}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SwitchType=switch/none
MpiDefault=none
KillWait=10
SlurmdTimeout=3
ReturnToService=2
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={2} CPUs=1
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={3} CPUs=1
PartitionName=low Nodes=n1,n2 Default=YES PriorityTier=1 GraceTime=10
PartitionName=high Nodes=n1,n2 PriorityTier=10 PreemptMode=OFF
)",
      folder_.string(), ports[0], ports[1], ports[2]);
}

void SlurmCluster::start(const std::string& name, const std::string& program,
                         const std::vector<std::string>& arguments) {
  daemons_.push_back(
      {name, std::make_unique<Child>(find_program(program), arguments, folder_ / (name + ".out"))});
}

void SlurmCluster::kill_node(const std::string& node) {
  for (const Daemon& daemon : daemons_) {
    if (daemon.name == node) daemon.process->send(SIGKILL);
  }
  // First those who would tell the controller how a job ended. They hide their environment.
  const std::string configuration = "SLURM_CONF=" + (folder_ / "slurm.conf").string();
  const std::vector<pid_t> managers = processes_that([&](const fs::path& process) {
    return text_of_file(process / "comm") == "slurmstepd\n" && has_open(process, folder_ / (node + ".log"));
  });
  for (const pid_t pid : managers) kill(pid, SIGKILL);
  const std::vector<pid_t> processes = processes_that([&](const fs::path& process) {
    return has_variable(process, "SLURMD_NODENAME=" + node) && has_variable(process, configuration);
  });
  for (const pid_t pid : processes) kill(pid, SIGKILL);
}

}  // namespace lowtide
