#include "lowtide/study/live_studies.h"

#include <algorithm>
#include <vector>

#include "lowtide/report/run_search.h"
#include "lowtide/study/folder.h"
#include "lowtide/study/status.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// Several pages may ask: the folders are looked at as often as one would.
constexpr std::chrono::milliseconds kLookEvery{1000};

// Below the folder that is served: runs/, runs/TASK/STUDY/ and one more.
constexpr int kMostLevels = 3;

bool is_plain(const fs::path& path, fs::file_type type) {
  std::error_code none;
  return fs::symlink_status(path, none).type() == type;
}

// A run folder holds no study, and a study no other.
void search(const fs::path& folder, int levels, std::vector<fs::path>& found) {
  if (is_plain(study_file(folder), fs::file_type::regular)) return found.push_back(folder);
  if (levels == 0 || is_plain(RunPaths{folder}.run(), fs::file_type::regular)) return;
  std::error_code none;
  for (fs::directory_iterator entry(folder, none), end; !none && entry != end; entry.increment(none)) {
    if (is_plain(entry->path(), fs::file_type::directory)) search(entry->path(), levels - 1, found);
  }
}

// Whether nothing that tells of a member is a link.
bool is_inside(const fs::path& study, const Member& member) {
  const MemberPaths paths(study, member);
  const std::vector<fs::path> all{paths.run.folder,   paths.run.run(),   paths.run.metrics(),
                                  paths.run.result(), paths.run.lease(), paths.run.checkpoints(),
                                  paths.lease(),      paths.failure()};
  return std::none_of(all.begin(), all.end(),
                      [](const fs::path& path) { return is_plain(path, fs::file_type::symlink); });
}

Json describe(const fs::path& root, const fs::path& folder) {
  Json json{{"name", run_name(root, folder)}, {"path", folder.string()}};
  try {
    const Study study = read_study(folder);
    std::vector<Member> all = members(study);
    for (const Member& member : all) {
      if (!is_inside(folder, member))
        return json["problem"] = "it holds symbolic links, which are not followed", json;
    }
    const std::vector<MemberStatus> status = read_status(all, folder);
    const auto running = std::count_if(status.begin(), status.end(), [](const MemberStatus& member) {
      return member.state == MemberState::kRunning;
    });
    json["kind"] = study.kind;
    json["left"] = running > 0 ? Json(seconds_left(status, static_cast<int>(running))) : Json();
    json["members"] = to_json(status);
  } catch (const std::exception& error) {
    json["problem"] = skip_reason(error);
  }
  return json;
}

}  // namespace

LiveStudies::LiveStudies(const fs::path& root) : root_(fs::weakly_canonical(root)) {}

Json LiveStudies::look() {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (looked_ && now - *looked_ < kLookEvery) return studies_;
  looked_ = now;
  std::vector<fs::path> found;
  search(root_, kMostLevels, found);
  std::sort(found.begin(), found.end());
  studies_ = Json::array();
  for (const fs::path& folder : found) studies_.push_back(describe(root_, folder));
  return studies_;
}

}  // namespace lowtide
