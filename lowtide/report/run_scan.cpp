#include "lowtide/report/run_scan.h"

#include <exception>

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// The reason alone: what it is about stands beside it.
std::string after_path(const fs::path& folder, const std::string& message) {
  const std::string prefix = folder.string();
  if (!message.starts_with(prefix)) return message;
  return message.substr(message.find_first_not_of(": /", prefix.size()));
}

}  // namespace

RunScan scan_runs(const fs::path& folder) {
  RunScan scan;
  const auto try_with = [&](const fs::path& about, const auto& call) {
    try {
      call();
    } catch (const std::exception& error) {
      scan.skipped.push_back({about, after_path(about, skip_reason(error))});
    }
  };
  FoundRuns found;
  try_with(folder, [&] { found = search_runs(folder); });
  for (const fs::path& run : found.runs) {
    try_with(run, [&] {
      RunSummary summary = read_run_summary(run);
      summary.name = run_name(folder, run);
      scan.runs.push_back(std::move(summary));
    });
  }
  scan.skipped.insert(scan.skipped.end(), found.skipped.begin(), found.skipped.end());
  if (scan.runs.empty() && scan.skipped.empty())
    scan.skipped.push_back({folder, "not a run folder, and it holds none"});
  return scan;
}

}  // namespace lowtide
