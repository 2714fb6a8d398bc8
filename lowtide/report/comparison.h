#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lowtide/base/json.h"

namespace lowtide {

// What a finished run is compared by, read from its folder alone.
struct RunSummary {
  std::filesystem::path folder{};
  std::string name{}, schedule{}, model{}, metric{};
  std::uint64_t seed = 0;
  double test = 0;
  Json valid{};  // null where nothing was held out
  double relative_cost = 0, gbitops_paper = 0, gbitops_actual = 0, seconds = 0;
  int eval_bits = 0;
  std::int64_t steps = 0;
};

// UserError where the folder is not a run, is damaged, or is not finished.
RunSummary read_run_summary(const std::filesystem::path& folder);

std::string comparison_table(const std::vector<RunSummary>& runs);
Json to_json(const RunSummary& run);

}  // namespace lowtide
