#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/cost_arguments.h"
#include "cli/parse.h"
#include "cli/runtime.h"
#include "lowtide/io/standard_output.h"
#include "lowtide/report/report.h"

namespace lowtide {

int report_command(int argc, char** argv) {
  std::vector<std::filesystem::path> folders;
  std::filesystem::path html;
  CLI::App app(
      "Write a page about runs: metric against cost, learning curves with the bits, schedules, layers,\n"
      "critical periods, landscapes, tables. It opens from disk, without a network or this program. What "
      "runs\n"
      "are compared by, --count and --axis, can be chosen on it too.",
      "report");
  app.add_option("DIR", folders, "run folders, or folders that hold such")->required()->type_name("");
  app.add_option("--html", html, "write the page to this file; -: standard output")
      ->required()
      ->check(no_file_of_a_run())
      ->type_name("FILE");
  CostMeasure measure;
  add_cost_options(app, measure);
  if (const auto code = parse(app, argc, argv)) return *code;
  const ReportOutcome outcome = write_report(folders, html, program_version(), measure);
  for (const auto& [folder, reason] : outcome.skipped)
    fmt::print(stderr, "skipped {}: {}\n", folder.string(), reason);
  fmt::print(message_stream(html), "{}: {} run{}, {:.1f} MB\n", html.string(), outcome.runs,
             outcome.runs == 1 ? "" : "s", static_cast<double>(outcome.bytes) / 1e6);
  return 0;
}

}  // namespace lowtide
