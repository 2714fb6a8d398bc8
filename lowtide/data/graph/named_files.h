#pragma once

#include <filesystem>
#include <string>

namespace lowtide {

// The file in a folder whose name ends so. UserError unless there is exactly one.
std::filesystem::path only_file(const std::filesystem::path& folder, const std::string& ending);

}  // namespace lowtide
