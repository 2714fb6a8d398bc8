#pragma once

#include <filesystem>
#include <vector>

#include "lowtide/report/comparison.h"
#include "lowtide/report/run_search.h"

namespace lowtide {

struct RunScan {
  std::vector<RunSummary> runs;  // by name
  std::vector<SkippedFolder> skipped;
};

// The finished runs among those that search_runs() finds in a folder. Whatever else is there is skipped with its
// reason: runs that are not finished or are damaged, and what the search skips; the folder itself where it holds
// nothing, or is none.
RunScan scan_runs(const std::filesystem::path& folder);

}  // namespace lowtide
