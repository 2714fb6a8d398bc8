#include "lowtide/study/stalls.h"

#include <fmt/format.h>

#include <cstdlib>

#include "lowtide/io/file.h"
#include "lowtide/train/metrics_line.h"

namespace lowtide {

std::int64_t kept_step(const MemberPaths& paths) {
  const std::vector<std::int64_t> checkpoints = checkpoint_steps(paths.run);
  if (!checkpoints.empty()) return checkpoints.back();
  // Lines of a run of ours are cut off where it begins again.
  const bool is_script = !file_exists(paths.recipe());
  if (!is_script || !file_exists(paths.run.metrics())) return 0;
  const auto line = last_logged_line(paths.run.metrics());
  return line ? line->step.value_or(0) : 0;
}

int add_stall(const MemberPaths& paths) {
  const std::string before = file_exists(paths.stalls()) ? read_text_file(paths.stalls()) : "0";
  const int count = std::atoi(before.c_str()) + 1;
  write_atomically(paths.stalls(), fmt::format("{}\n", count));
  return count;
}

void forget_stalls(const MemberPaths& paths) { remove_file(paths.stalls()); }

}  // namespace lowtide
