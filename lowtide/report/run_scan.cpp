#include "lowtide/report/run_scan.h"

#include <algorithm>
#include <system_error>

#include "lowtide/base/error.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// The reason alone: what it is about stands beside it.
std::string after_path(const fs::path& folder, const std::string& message) {
  const std::string prefix = folder.string();
  if (!message.starts_with(prefix)) return message;
  return message.substr(message.find_first_not_of(": /", prefix.size()));
}

std::vector<fs::directory_entry> folders_in(const fs::path& folder) {
  std::vector<fs::directory_entry> folders;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) folders.push_back(entry);
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

class Scan {
 public:
  explicit Scan(const fs::path& root) : root_(root) {}

  // False where there is nothing to tell: no run here or below, not even a damaged one. Of a whole tree
  // without runs only the top is then named, by the caller.
  bool visit(const fs::path& folder) {
    std::error_code error;
    if (fs::exists(RunPaths{folder}.run(), error)) return read(folder), true;
    try {
      std::vector<fs::path> foreign;
      bool told = false;
      for (const fs::directory_entry& entry : folders_in(folder)) {
        if (entry.is_symlink()) {
          skip(entry.path(), "a symbolic link; name it to look into it");
          told = true;
        } else if (visit(entry.path())) {
          told = true;
        } else {
          foreign.push_back(entry.path());
        }
      }
      if (!told) return false;
      for (const fs::path& path : foreign) skip_foreign(path);
    } catch (const fs::filesystem_error& failure) {
      skip(folder, failure.code().message());
    }
    return true;
  }

  void skip_foreign(const fs::path& folder) { skip(folder, "not a run folder: no run.json here or below"); }

  RunScan result;

 private:
  void read(const fs::path& folder) {
    try {
      RunSummary run = read_run_summary(folder);
      const fs::path below = folder.lexically_relative(root_);
      if (below != ".") run.name = below.string();
      result.runs.push_back(std::move(run));
    } catch (const UserError& error) {
      skip(folder, after_path(folder, error.what()));
    }
  }

  void skip(const fs::path& folder, const std::string& reason) { result.skipped.push_back({folder, reason}); }

  const fs::path root_;
};

}  // namespace

RunScan scan_runs(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return {{}, {{folder, fs::exists(folder, error) ? "not a folder" : "no such folder"}}};
  }
  Scan scan(folder);
  if (!scan.visit(folder)) scan.skip_foreign(folder);
  return std::move(scan.result);
}

}  // namespace lowtide
