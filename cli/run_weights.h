#pragma once

#include <filesystem>

#include "lowtide/train/run_folder.h"

namespace lowtide {

// The weights that a run was judged by: the averaged ones where there are such, else its last checkpoint. UserError where
// it has none.
std::filesystem::path last_weights(const RunPaths& run);

// Those of its best evaluation, kept by --keep-best.
std::filesystem::path best_weights(const RunPaths& run);

}  // namespace lowtide
