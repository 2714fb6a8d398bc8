#pragma once

// Where the real data sets are, for the tests that read them: $LOWTIDE_DATA_DIR, or shared/data beside the
// project.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace lowtide {

inline std::filesystem::path from_environment(const char* variable, const std::filesystem::path& otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? std::filesystem::path(value) : otherwise;
}

inline std::filesystem::path data_folder() {
  return from_environment("LOWTIDE_DATA_DIR",
                          std::filesystem::path(LOWTIDE_SOURCE_DIR) / ".." / "shared" / "data");
}

}  // namespace lowtide

// Ends the test as skipped, not as passed, where the data is not there.
#define LOWTIDE_NEEDS_DATA(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs " << (path) << " (see $LOWTIDE_DATA_DIR)"
