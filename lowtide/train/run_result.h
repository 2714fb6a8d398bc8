#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lowtide/base/json.h"

namespace lowtide {

// The test set, evaluated with one set of weights.
struct TestFigures {
  std::optional<double> metric{}, loss{};  // nothing where they are not known, or were not finite
  Json also = Json::object();              // further figures of the task, by name
};

// What a finished run came to: result.json, whose contract is docs/run-folder.md.
struct RunResult {
  struct Best {
    std::int64_t step = 0;
    std::optional<double> valid{};
    TestFigures test{};
  };

  std::string metric{};           // name of what `valid` and `test` are
  std::optional<double> valid{};  // nothing where no items were held out
  TestFigures test{};
  int eval_bits = 0;
  double relative_cost = 0;  // counted as the papers do
  double gbitops_paper = 0, gbitops_actual = 0;
  Json bitops{};  // the same two, exact
  std::int64_t averaged = 0;
  double seconds = 0;
  std::int64_t steps = 0;
  Json skipped{};                               // items left out, by split; null where the recipe skips none
  std::optional<std::int64_t> planned_steps{};  // of a run that may stop early
  bool looks_for_best = false;
  std::optional<Best> best{};  // nothing where none was finite
};

Json to_json(const RunResult& result);
Json to_json(const RunResult::Best& best);

// Keys that are unknown are passed over, and those that came later may be missing. UserError, beginning with `where`, for any
// other that is missing or of a wrong type.
RunResult run_result_from_json(const Json& json, const std::string& where);
RunResult read_run_result(const std::filesystem::path& file);

}  // namespace lowtide
