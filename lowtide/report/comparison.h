#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/report/run_cost.h"
#include "lowtide/train/run_result.h"

namespace lowtide {

// What a finished run is compared by, read from its folder alone.
struct RunSummary {
  std::filesystem::path folder{};
  std::string name{}, schedule{}, model{}, data{}, metric{};  // data: the folder's name, or the format's
  std::uint64_t seed = 0;
  double test = 0;
  std::optional<double> valid{};          // nothing where no items were held out
  std::optional<RunResult::Best> best{};  // evaluation, where it was kept
  std::string data_dir{};
  Json variant{};  // as variant_of gave it
  RunCost cost{};
  int eval_bits = 0;
  std::int64_t steps = 0;
};

// What two runs must agree in to be one experiment repeated with other seeds: the recipe without the seed,
// without what only says how it ran and where its data lay, and with the schedule's whole line in the place
// of the keys that it is made of. `run` is a run.json.
Json variant_of(const Json& run);

RunCost cost_of(const RunResult& result);

// UserError where the folder is not a run, is damaged, or is not finished.
RunSummary read_run_summary(const std::filesystem::path& folder);

// Runs that can be compared: of one model, data set, length and metric. In the order of the first of each.
std::vector<std::vector<RunSummary>> comparable_sets(const std::vector<RunSummary>& runs);

// A table for each set that can be compared, with its front by `measure`; what the sets differ in is said, and
// in what the recipes of a set do.
std::string comparison_text(const std::vector<RunSummary>& runs, const CostMeasure& measure = {});
Json comparison_json(const std::vector<RunSummary>& runs, const CostMeasure& measure = {});

}  // namespace lowtide
