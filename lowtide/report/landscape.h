#pragma once

#include <filesystem>

#include "lowtide/base/json.h"

namespace lowtide {

inline std::filesystem::path landscape_path(const std::filesystem::path& run_folder) {
  return run_folder / "landscape.json";
}

// The loss over two directions around a trained model: {"x": […], "y": […], "loss": [[…], …]}, a row of losses
// for each y, a loss for each x. docs/report.md describes it. UserError where that does not fit together.
Json read_landscape(const std::filesystem::path& path);

}  // namespace lowtide
