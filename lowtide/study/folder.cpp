#include "lowtide/study/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include "lowtide/base/error.h"
#include "lowtide/train/recipe_file.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

void check_same(const fs::path& folder, const Study& stored, const Study& asked) {
  const Json was = essence(stored), is = essence(asked);
  for (const std::string& key : differences(stored, asked)) {
    throw UserError(fmt::format("{}: {} is {} in this study, but {} was asked for; choose another --out",
                                folder.string(), key, was.value(key, Json()).dump(),
                                is.value(key, Json()).dump()));
  }
}

}  // namespace

fs::path study_file(const fs::path& folder) { return folder / "study.toml"; }

Study read_study(const fs::path& folder) {
  const fs::path file = study_file(folder);
  if (!fs::exists(file)) {
    throw UserError(fmt::format("{} is not the folder of a study: it has no study.toml", folder.string()));
  }
  return parse_study(read_text_file(file, kMaxRecipeBytes), file.string());
}

StudyFolder::StudyFolder(const fs::path& folder, const Study& study) {
  const bool is_study = fs::exists(study_file(folder));
  if (is_study) check_same(folder, read_study(folder), study);
  std::error_code error;
  if (!is_study && fs::exists(folder) && !fs::is_empty(folder, error)) {
    throw UserError(fmt::format("{} holds other things and no study.toml; choose a new folder for --out",
                                folder.string()));
  }
  make_folders(folder);
  lock_ = open_for_writing(folder / "study.lock", O_CLOEXEC);
  if (flock(lock_.number(), LOCK_EX | LOCK_NB) != 0) {
    throw UserError(fmt::format("{}: another process runs this study", folder.string()));
  }
  if (!is_study) write_atomically(study_file(folder), to_toml(study));
}

}  // namespace lowtide
