#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/study/study.h"

namespace lowtide {

struct RunnerOptions {
  std::filesystem::path program =
      "/proc/self/exe";  // that which runs now, even if it has been replaced on disk
  int jobs = 1;
  int threads = 0;  // in all, shared by the jobs and their ranks; 0: all cores
  std::function<void(const std::string&)> say = [](auto&) {};  // a line for people
  std::optional<std::size_t> only{};                           // this member, and no other
  std::filesystem::path vmstat = "/proc/vmstat";  // counts the processes that the kernel ended for memory
};

struct FailedMember {
  std::string name, reason;
};

struct MemberElsewhere {
  std::string name, writer;  // the process that trains it
};

struct RunnerEnd {
  int signal = 0;  // what stopped it; the rest waits
  std::vector<FailedMember> failed;
  std::vector<MemberElsewhere> elsewhere;
};

// Trains every member that has no result yet, from its last checkpoint where there is one: `jobs` at a time, each a
// process of `program train`, which holds the run's lease (of a script this process holds one), and has its share of
// the threads and of a GPU's memory. One that another process trains already is left to it. One that fails is noted and
// the rest go on. Signals that ask to stop (kStopSignals) are passed on to the processes, which save; a second SIGTERM
// or SIGINT ends this process at once, and they save all the same.
RunnerEnd run_members(const std::vector<Member>& members, const std::filesystem::path& folder,
                      const RunnerOptions& options);

}  // namespace lowtide
