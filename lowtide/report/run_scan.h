#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lowtide/report/comparison.h"

namespace lowtide {

struct SkippedFolder {
  std::filesystem::path folder;
  std::string reason;
};

struct RunScan {
  std::vector<RunSummary> runs;  // by name
  std::vector<SkippedFolder> skipped;
};

// The finished runs in a folder: itself, or all below it, named by their path within it. Whatever else is
// there is skipped with its reason: runs that are not finished or are damaged, folders that hold no run,
// symbolic links to folders. What lies within a run is not looked at.
RunScan scan_runs(const std::filesystem::path& folder);

}  // namespace lowtide
