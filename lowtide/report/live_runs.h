#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/report/run_data.h"
#include "lowtide/report/run_search.h"

namespace lowtide {

// The runs under a folder while they go on. Looks at the folder when asked, at most every so often, and reads
// of each file only what was added to it; keeps no lines. Only reads, and only what lies in the folder. May be
// asked by several threads.
class LiveRuns {
 public:
  explicit LiveRuns(const std::filesystem::path& root);

  // What changed after the revision `since`, 0 for everything: {"revision", "ids" of all runs there are,
  // "runs" that changed, "schedules" of these, "skipped"}.
  Json changes(std::uint64_t since);

  // The lines of a run from the byte `from` on, as encode_metrics gives them, with {"generation", "from",
  // "end"} in the header. `generation` is that of the run as the asker knows it: where the file was replaced
  // since, as a resume does, it is given from the beginning. nullopt where there is no such run.
  std::optional<std::string> lines(std::uint64_t id, std::uint64_t generation, std::uint64_t from);

 private:
  // Which file lies at a path, and whether it was written to.
  struct Stamp {
    std::uint64_t inode = 0;
    std::uint64_t size = 0;
    std::int64_t modified = 0;  // nanoseconds
    bool operator==(const Stamp&) const = default;
  };
  struct Run {
    std::uint64_t id = 0;
    std::uint64_t revision = 0;    // of the last change
    std::uint64_t generation = 0;  // of its metrics.jsonl
    std::uint64_t end = 0;         // bytes of it that were read
    std::vector<Stamp> files;      // all but metrics.jsonl
    Stamp lines;
    Json about;     // as read_run gave it
    Json progress;  // as describe_lines gave it
    std::string problem;
  };

  static Stamp stamp(const std::filesystem::path& path);
  static std::vector<Stamp> stamps(const std::filesystem::path& folder);
  void refresh();
  void refresh_run(const std::filesystem::path& folder);
  static void read_new_lines(const std::filesystem::path& folder, Run& run, const Stamp& before,
                             const Stamp& now);
  Json entry(const std::filesystem::path& folder, const Run& run) const;

  std::filesystem::path root_;
  std::mutex mutex_;
  std::map<std::filesystem::path, Run> runs_;
  std::vector<SkippedFolder> foreign_;
  std::uint64_t revision_ = 0;
  std::uint64_t next_id_ = 0;
  std::optional<std::chrono::steady_clock::time_point> refreshed_;
};

}  // namespace lowtide
