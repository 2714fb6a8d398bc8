#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "lowtide/io/lease.h"
#include "lowtide/study/study.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {

// A member's folder in that of its study: an ordinary run folder, with a few files more.
struct MemberPaths {
  RunPaths run;

  MemberPaths(const std::filesystem::path& study, const Member& member) : run{study / member.name} {}
  std::filesystem::path recipe() const { return run.folder / "recipe.toml"; }
  std::filesystem::path log() const { return run.folder / "train.log"; }
  // Of one that is a script, held by who runs it: training holds the run's own.
  std::filesystem::path lease() const { return run.folder / "member.lease"; }
  std::filesystem::path failure() const { return run.folder / "failed.txt"; }  // one line: why
  std::filesystem::path stalls() const { return run.folder / "stalls.txt"; }   // see stalls.h
};

// The folder of a study, taken by this process and no other as long as it lives.
class StudyFolder {
 public:
  // A new folder, or one of which no run has begun, or one that holds the same study, perhaps with fewer seeds: it then grows,
  // and what was run stays. UserError for another study, and for a folder of other things. `say` gets a line where it must
  // be waited for.
  StudyFolder(
      const std::filesystem::path& folder, const Study& study,
      const std::function<void(const std::string&)>& say = [](auto&) {});

  std::int64_t seeds_before() const { return seeds_before_; }  // 0 where no run has begun

 private:
  std::optional<Lease> lease_;
  std::int64_t seeds_before_ = 0;
};

std::filesystem::path study_file(const std::filesystem::path& folder);
// The study that a folder holds.
Study read_study(const std::filesystem::path& folder);

}  // namespace lowtide
