#include "lowtide/data/graph/named_files.h"

#include <fmt/format.h>

#include <vector>

#include "lowtide/base/error.h"

namespace lowtide {

std::filesystem::path only_file(const std::filesystem::path& folder, const std::string& ending) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().ends_with(ending)) found.push_back(entry.path());
  }
  if (found.size() != 1) {
    throw UserError(fmt::format("{}: {} files of a name that ends with {}; expected one", folder.string(),
                                found.size(), ending));
  }
  return found.front();
}

}  // namespace lowtide
