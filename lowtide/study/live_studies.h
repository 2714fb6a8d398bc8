#pragma once

#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>

#include "lowtide/base/json.h"

namespace lowtide {

// The studies under a folder while they go on, on whichever machines. Looks at the folder when asked, at most every so often. Only
// reads, and only what lies in the folder: symbolic links are not followed. May be asked by several threads.
class LiveStudies {
 public:
  explicit LiveStudies(const std::filesystem::path& root);

  // A list, by folder: {"name", "path", "kind", "left" (seconds, null where nothing tells), "members": as `study status --json`
  // has them}. A study that cannot be read has a "problem" instead of members.
  Json look();

 private:
  std::filesystem::path root_;
  std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> looked_;
  Json studies_ = Json::array();
};

}  // namespace lowtide
