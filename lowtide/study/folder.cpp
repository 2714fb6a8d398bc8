#include "lowtide/study/folder.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/io/file.h"
#include "lowtide/io/lease.h"
#include "lowtide/recipe/recipe_file.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// But for seeds that are added.
void check_same(const fs::path& folder, const Study& stored, const Study& asked) {
  const Json was = determining_keys(stored), is = determining_keys(asked);
  for (const std::string& key : differences(stored, asked)) {
    if (key == "seeds" && asked.seeds > stored.seeds) continue;
    if (key == "seeds") {
      throw UserError(fmt::format("{}: this study has {} seeds, but --seeds is {}; it can grow, not shrink",
                                  folder.string(), stored.seeds, asked.seeds));
    }
    throw UserError(fmt::format("{}: {} is {} in this study, but {} was asked for; choose another --out",
                                folder.string(), key, was.value(key, Json()).dump(),
                                is.value(key, Json()).dump()));
  }
}

bool is_held(const fs::path& lease) {
  const auto state = lease_state(lease);
  return state && state->is_alive();
}

// A study of which no run got going has nothing to lose: the corrected command takes its place. One that still reads its data
// has a lease.
bool any_run_has_begun(const fs::path& folder, const Study& study) {
  const std::vector<Member> all = members(study);
  return std::any_of(all.begin(), all.end(), [&](const Member& member) {
    const MemberPaths paths(folder, member);
    return has_begun(paths.run) || is_held(paths.run.lease()) || is_held(paths.lease());
  });
}

}  // namespace

fs::path study_file(const fs::path& folder) { return folder / "study.toml"; }

Study read_study(const fs::path& folder) {
  const fs::path file = study_file(folder);
  if (!file_exists(file)) {
    throw UserError(fmt::format("{} is not the folder of a study: it has no study.toml", folder.string()));
  }
  return parse_study(read_text_file(file, kMaxRecipeBytes), file.string());
}

StudyFolder::StudyFolder(const fs::path& folder, const Study& study,
                         const std::function<void(const std::string&)>& say) {
  const bool is_study = file_exists(study_file(folder));
  if (is_study) {
    const Study stored = read_study(folder);
    if (any_run_has_begun(folder, stored)) {
      check_same(folder, stored, study);
      seeds_before_ = stored.seeds;
    }
  }
  if (!is_study && file_exists(folder) && !folder_entries(folder).empty()) {
    throw UserError(fmt::format("{} holds other things and no study.toml; choose a new folder for --out",
                                folder.string()));
  }
  make_folders(folder);
  lease_.emplace(folder / "study.lease",
                 LeaseOptions{.taken = "another process runs this study", .say = say});
  if (seeds_before_ != study.seeds) write_atomically(study_file(folder), to_toml(study));
}

}  // namespace lowtide
