#pragma once

#include <cstdlib>
#include <filesystem>

namespace lowtide {

// Where the recorded values lie: LOWTIDE_GOLDEN_DIR in the environment, or the folder of these sources.
inline std::filesystem::path golden_dir() {
  const char* chosen = std::getenv("LOWTIDE_GOLDEN_DIR");
  return chosen != nullptr ? chosen : LOWTIDE_GOLDEN_DIR;
}

}  // namespace lowtide
