#include "lowtide/report/run_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <system_error>

#include "lowtide/base/error.h"
#include "lowtide/io/file.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr const char* kForeign = "not a run folder: it has no run.json, and no folder in it is a run";

// Whether there is anything of that name, a broken link too.
bool is_there(const fs::path& path) { return fs::exists(fs::symlink_status(path)); }

// What a run leaves behind that was cut off before it had written run.json, or lost it.
bool is_half_a_run(const RunPaths& paths) {
  return is_there(paths.metrics()) || is_there(paths.result()) || is_there(paths.checkpoints());
}

std::vector<fs::path> folders_in(const fs::path& folder, FoundRuns& scan) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_symlink() && entry.is_directory()) {
      scan.skipped.push_back({entry.path(), "a symbolic link, which is not followed; name it by itself"});
    } else if (!entry.is_symlink() && entry.is_directory()) {
      folders.push_back(entry.path());
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

bool search(const fs::path& folder, bool is_root, FoundRuns& scan);

bool search_inside(const fs::path& folder, bool is_root, FoundRuns& scan) {
  bool found = false;
  std::vector<fs::path> foreign;
  for (const fs::path& inner : folders_in(folder, scan)) {
    if (search(inner, false, scan)) {
      found = true;
    } else {
      foreign.push_back(inner);
    }
  }
  // Of a tree of folders without a run only the uppermost is named.
  if (found || is_root) {
    for (const fs::path& inner : foreign) scan.skipped.push_back({inner, kForeign});
  }
  return found;
}

// Whether the folder is told of: as a run, as one that was skipped, or by what is in it.
bool search(const fs::path& folder, bool is_root, FoundRuns& scan) {
  const RunPaths paths{folder};
  try {
    if (is_there(paths.run())) {
      scan.runs.push_back(folder);
    } else if (is_half_a_run(paths)) {
      scan.skipped.push_back({folder, "half a run folder: run.json is missing"});
    } else {
      return search_inside(folder, is_root, scan);
    }
  } catch (const fs::filesystem_error& error) {
    scan.skipped.push_back({folder, skip_reason(error)});
  }
  return true;
}

}  // namespace

FoundRuns search_runs(const fs::path& root) {
  const bool exists = file_exists(root);
  if (!exists || !fs::is_directory(root))
    throw UserError(fmt::format("{}: {}; expected a run folder, or a folder of such", root.string(),
                                exists ? "not a folder" : "no such folder"));
  FoundRuns scan;
  search(root, true, scan);
  std::sort(scan.skipped.begin(), scan.skipped.end(),
            [](const auto& a, const auto& b) { return a.folder < b.folder; });
  return scan;
}

std::string skip_reason(const std::exception& error) {
  const auto* file = dynamic_cast<const fs::filesystem_error*>(&error);
  if (file != nullptr) return fmt::format("cannot be read: {}", file->code().message());
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "too large for this machine's memory";
  return error.what();
}

std::string run_name(const fs::path& root, const fs::path& folder) {
  const fs::path below = folder.lexically_relative(root);
  if (!below.empty() && below != ".") return below.string();
  return fs::weakly_canonical(folder).filename().string();
}

}  // namespace lowtide
