#include "lowtide/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/train/progress.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {

RunSummary read_run_summary(const std::filesystem::path& folder) {
  const RunPaths paths{folder};
  if (!std::filesystem::exists(paths.run())) {
    throw UserError(fmt::format("{} is not a run folder: it has no run.json", folder.string()));
  }
  if (!std::filesystem::exists(paths.result())) {
    throw UserError(fmt::format("{} is not finished; continue it with: lowtide train --resume {}",
                                folder.string(), folder.string()));
  }
  const Json run = read_run_file(paths.run()), result = read_run_file(paths.result());
  try {
    const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
    return {.name = name.string(),
            .schedule = run.at("schedule"),
            .model = run.at("recipe").at("model"),
            .metric = result.at("metric"),
            .test = result.at("test"),
            .valid = result.at("valid"),
            .relative_cost = result.at("relative_cost"),
            .gbitops_paper = result.at("gbitops").at("paper"),
            .gbitops_actual = result.at("gbitops").at("actual"),
            .seconds = result.at("seconds"),
            .eval_bits = result.at("eval_bits")};
  } catch (const Json::exception& error) {
    throw UserError(
        fmt::format("{}: run.json or result.json is not of this format ({})", folder.string(), error.what()));
  }
}

std::string comparison_table(const std::vector<RunSummary>& runs) {
  std::size_t name_width = 3, schedule_width = 8;
  for (const RunSummary& run : runs) {
    name_width = std::max(name_width, run.name.size());
    schedule_width = std::max(schedule_width, run.schedule.size());
  }
  const std::string metric = runs.empty() ? "metric" : runs[0].metric;
  std::string table = fmt::format("{:<{}}  {:<{}}  {:>13}  {:>9}  {:>7}  {:>13}  {:>13}  {:>12}\n", "run",
                                  name_width, "schedule", schedule_width, "test " + metric, "held out",
                                  "cost", "GBitOps paper", "actual", "time");
  for (const RunSummary& run : runs) {
    const std::string valid =
        run.valid.is_null() ? "-" : fmt::format("{:.2f} %", 100 * run.valid.get<double>());
    table +=
        fmt::format("{:<{}}  {:<{}}  {:>11.2f} %  {:>9}  {:>7.4f}  {:>13.1f}  {:>13.1f}  {:>12}\n", run.name,
                    name_width, run.schedule, schedule_width, 100 * run.test, valid, run.relative_cost,
                    run.gbitops_paper, run.gbitops_actual, duration_text(run.seconds));
  }
  return table;
}

Json to_json(const RunSummary& run) {
  return {{"run", run.name},
          {"schedule", run.schedule},
          {"model", run.model},
          {"metric", run.metric},
          {"test", run.test},
          {"valid", run.valid},
          {"eval_bits", run.eval_bits},
          {"relative_cost", run.relative_cost},
          {"gbitops", {{"paper", run.gbitops_paper}, {"actual", run.gbitops_actual}}},
          {"seconds", run.seconds}};
}

}  // namespace lowtide
