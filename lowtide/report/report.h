#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lowtide/report/run_cost.h"
#include "lowtide/report/run_search.h"

namespace lowtide {

struct ReportOutcome {
  std::size_t runs = 0;
  std::vector<SkippedFolder> skipped;
  std::uintmax_t bytes = 0;
};

// Writes one page that holds all runs under the roots, with every logged number; `-` is standard output. `program` is named
// on it; it opens with runs compared by `measure`. UserError where there is no run at all.
ReportOutcome write_report(const std::vector<std::filesystem::path>& roots, const std::filesystem::path& html,
                           const std::string& program, const CostMeasure& measure = {});

}  // namespace lowtide
