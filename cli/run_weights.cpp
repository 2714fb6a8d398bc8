#include "cli/run_weights.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"

namespace lowtide {

std::filesystem::path last_weights(const RunPaths& run) {
  if (file_exists(run.averaged())) return run.averaged();
  const std::vector<std::int64_t> steps = checkpoint_steps(run);
  if (steps.empty())
    throw UserError(fmt::format("{}: no checkpoint in it; expected a run folder", run.folder.string()));
  return run.checkpoint(steps.back());
}

std::filesystem::path best_weights(const RunPaths& run) {
  std::filesystem::path path = run.best();
  if (!file_exists(path))
    throw UserError(
        fmt::format("{}: the run kept no best weights; evaluate without --best", run.folder.string()));
  return path;
}

}  // namespace lowtide
