#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/commands.h"
#include "cli/cost_arguments.h"
#include "cli/parse.h"
#include "lowtide/base/error.h"
#include "lowtide/report/run_scan.h"

namespace lowtide {

int compare_command(int argc, char** argv) {
  std::vector<std::string> folders;
  bool json = false;
  CostMeasure measure;
  CLI::App app(
      "Compare finished runs: metric, cost, bit operations, time, and which are on the front. Runs of "
      "another\n"
      "model, data set or length are in a table of their own.",
      "compare");
  app.add_option("RUN", folders, "run folders, or folders of runs")->required();
  app.add_flag("--json", json, "print JSON");
  add_cost_options(app, measure);
  if (const auto code = parse(app, argc, argv)) return *code;
  RunScan all;
  for (const std::string& folder : folders) {
    RunScan scan = scan_runs(folder);
    std::move(scan.runs.begin(), scan.runs.end(), std::back_inserter(all.runs));
    std::move(scan.skipped.begin(), scan.skipped.end(), std::back_inserter(all.skipped));
  }
  if (all.runs.empty()) {
    const SkippedFolder& first = all.skipped.at(0);
    throw UserError(
        fmt::format("{}: {}; there is no finished run to compare", first.folder.string(), first.reason));
  }
  for (const SkippedFolder& skipped : all.skipped)
    fmt::print(stderr, "note: skipped {}: {}\n", skipped.folder.string(), skipped.reason);
  fmt::print("{}",
             json ? comparison_json(all.runs, measure).dump(2) + "\n" : comparison_text(all.runs, measure));
  return 0;
}

}  // namespace lowtide
