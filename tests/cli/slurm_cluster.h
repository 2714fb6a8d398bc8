#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lowtide/study/child.h"
#include "tests/io/scratch.h"

namespace lowtide {

// A real SLURM on this machine, for as long as this lives: munged, slurmctld, and a slurmd for each of the nodes n1 and n2, of
// one core each, on ports of the loopback that were free. A job of the partition `high` preempts those of `low`, the default.
// The environment says where its configuration is, for all of SLURM's commands and for the program.
class SlurmCluster {
 public:
  // Why there cannot be one here; empty where there can.
  static std::string missing();

  explicit SlurmCluster(const std::filesystem::path& folder);
  ~SlurmCluster();
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  // A node goes down: its daemon and all that runs on it end at once.
  void kill_node(const std::string& node);

 private:
  void write_configuration() const;
  void start(const std::string& name, const std::string& program, const std::vector<std::string>& arguments);

  struct Daemon {
    std::string name;
    std::unique_ptr<Child> process;
  };
  std::filesystem::path folder_;
  std::vector<Daemon> daemons_;  // in the order in which they were started
};

// The words of a command, separated by spaces: what it prints. Fails the test where it fails.
std::string output_of(const std::string& command);

}  // namespace lowtide
