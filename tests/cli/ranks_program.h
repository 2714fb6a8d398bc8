#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "lowtide/io/file.h"
#include "lowtide/io/jsonl.h"
#include "tests/cli/program.h"

namespace lowtide {

// One run by several processes.
class RanksProgram : public Program {
 protected:
  using Flags = std::vector<std::string>;

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

  // Each with output in a folder of its own.
  std::vector<Process> started_ranks(const Flags& flags, int port, int size) {
    std::vector<Process> processes;
    for (int rank = 0; rank < size; ++rank) {
      const std::filesystem::path place = folder_ / fmt::format("rank{}", rank);
      std::filesystem::create_directories(place);
      processes.emplace_back(place, flags, as_rank(rank, size, port));
    }
    return processes;
  }
};

// The processes of a run that was started here, by rank.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", parent));
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

}  // namespace lowtide
