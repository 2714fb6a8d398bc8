#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/commands.h"
#include "cli/parse.h"
#include "lowtide/base/error.h"
#include "lowtide/report/run_scan.h"

namespace lowtide {

int compare_command(int argc, char** argv) {
  std::vector<std::string> folders;
  bool json = false;
  CLI::App app("Compare finished runs: metric, cost, bit operations, time.", "compare");
  app.add_option("RUN", folders, "run folders, or folders of runs")->required();
  app.add_flag("--json", json, "print JSON");
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
  if (!json) return fmt::print("{}", comparison_table(all.runs)), 0;
  Json list = Json::array();
  for (const RunSummary& run : all.runs) list.push_back(to_json(run));
  fmt::print("{}\n", list.dump(2));
  return 0;
}

}  // namespace lowtide
