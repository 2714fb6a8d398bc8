#pragma once

#include <exception>
#include <filesystem>
#include <string>
#include <vector>

namespace lowtide {

struct SkippedFolder {
  std::filesystem::path folder;
  std::string reason;
};

// The run folders under a folder, or the folder itself where it is one, in the order of their names; and each
// folder that was looked into in vain, with the reason. A run folder is not searched for others. Symbolic
// links below the root are not followed: what is listed lies in it.
struct FoundRuns {
  std::vector<std::filesystem::path> runs;
  std::vector<SkippedFolder> skipped;
};

// UserError where the root is not a folder. Only looks at names: whether a run is whole, its
// reader tells.
FoundRuns search_runs(const std::filesystem::path& root);

// Why a folder could not be read, for people. Whatever one holds, it must not keep others from being read: those who
// read many catch every exception.
std::string skip_reason(const std::exception& error);

// The run's name for people: its path below the root, or the folder's own name where the root is the run.
std::string run_name(const std::filesystem::path& root, const std::filesystem::path& folder);

}  // namespace lowtide
