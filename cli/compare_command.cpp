#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/parse.h"
#include "lowtide/report/comparison.h"

namespace lowtide {

int compare_command(int argc, char** argv) {
  std::vector<std::string> folders;
  bool json = false;
  CLI::App app("Compare finished runs: metric, cost, bit operations, time.", "compare");
  app.add_option("RUN", folders, "run folders")->required();
  app.add_flag("--json", json, "print JSON");
  if (const auto code = parse(app, argc, argv)) return *code;
  std::vector<RunSummary> runs;
  for (const std::string& folder : folders) runs.push_back(read_run_summary(folder));
  if (!json) return fmt::print("{}", comparison_table(runs)), 0;
  Json list = Json::array();
  for (const RunSummary& run : runs) list.push_back(to_json(run));
  fmt::print("{}\n", list.dump(2));
  return 0;
}

}  // namespace lowtide
