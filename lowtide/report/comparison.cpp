#include "lowtide/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"
#include "lowtide/train/metric.h"
#include "lowtide/train/progress.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {

RunSummary read_run_summary(const std::filesystem::path& folder) {
  const RunPaths paths{folder};
  if (!file_exists(paths.run())) {
    throw UserError(fmt::format("{} is not a run folder: it has no run.json", folder.string()));
  }
  if (!file_exists(paths.result())) {
    throw UserError(fmt::format("{} is not finished; continue it with: lowtide train --resume {}",
                                folder.string(), folder.string()));
  }
  const Json run = read_run_file(paths.run()), result = read_run_file(paths.result());
  if (run.value("format", Json()) != kRunFormat) {
    throw UserError(fmt::format("{}: run.json is of format {}; this program reads runs of format {}",
                                folder.string(), run.value("format", Json()).dump(), kRunFormat));
  }
  try {
    find_metric(result.at("metric").get<std::string>());
    if (const Json& valid = result.at("valid"); !valid.is_null()) valid.get<double>();
    const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
    return {.folder = folder,
            .name = name.string(),
            .schedule = run.at("schedule"),
            .model = run.at("recipe").at("model"),
            .metric = result.at("metric"),
            .seed = run.at("seed"),
            .test = result.at("test"),
            .valid = result.at("valid"),
            .relative_cost = result.at("relative_cost"),
            .gbitops_paper = result.at("gbitops").at("paper"),
            .gbitops_actual = result.at("gbitops").at("actual"),
            .seconds = result.at("seconds"),
            .eval_bits = result.at("eval_bits"),
            .steps = result.at("steps")};
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("{}: run.json or result.json lacks a value or holds a wrong one ({})",
                                folder.string(), json_reason(error)));
  }
}

std::string comparison_table(const std::vector<RunSummary>& runs) {
  std::size_t name_width = 3, schedule_width = 8;
  for (const RunSummary& run : runs) {
    name_width = std::max(name_width, run.name.size());
    schedule_width = std::max(schedule_width, run.schedule.size());
  }
  const bool one_metric = std::all_of(runs.begin(), runs.end(),
                                      [&](const RunSummary& run) { return run.metric == runs[0].metric; });
  const std::string name = runs.empty() || !one_metric ? "metric" : runs[0].metric;
  std::string table = fmt::format("{:<{}}  {:<{}}  {:>13}  {:>9}  {:>7}  {:>13}  {:>13}  {:>12}\n", "run",
                                  name_width, "schedule", schedule_width, "test " + name, "held out", "cost",
                                  "GBitOps paper", "actual", "time");
  for (const RunSummary& run : runs) {
    const Metric& metric = find_metric(run.metric);
    const std::string valid = run.valid.is_null() ? "-" : metric_text(metric, run.valid.get<double>());
    table +=
        fmt::format("{:<{}}  {:<{}}  {:>13}  {:>9}  {:>7.4f}  {:>13.1f}  {:>13.1f}  {:>12}\n", run.name,
                    name_width, run.schedule, schedule_width, metric_text(metric, run.test), valid,
                    run.relative_cost, run.gbitops_paper, run.gbitops_actual, duration_text(run.seconds));
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
