#include "lowtide/report/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"
#include "lowtide/recipe/recipe.h"
#include "lowtide/schedule/text.h"
#include "lowtide/train/metric.h"
#include "lowtide/train/progress.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {
namespace {

// The same data may lie elsewhere on another machine.
std::string data_name(const Json& recipe) {
  const std::filesystem::path folder = recipe.value("data-dir", "");
  const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  return name.empty() ? recipe.value("data", "") : name.string();
}

auto comparison_key(const RunSummary& run) { return std::tie(run.model, run.data, run.steps, run.metric); }

std::vector<bool> front_of(const std::vector<RunSummary>& set, const CostMeasure& measure) {
  std::vector<CostAndValue> points;
  for (const RunSummary& run : set) points.push_back({run.cost.total(measure), run.test});
  return pareto_front(points, find_metric(set[0].metric));
}

// "81.30 % at 120": of the best evaluation, which `test` never is.
std::string best_text(const RunSummary& run) {
  if (!run.best || !run.best->test.metric) return "-";
  return fmt::format("{} at {}", metric_text(find_metric(run.metric), *run.best->test.metric),
                     run.best->step);
}

std::string table(const std::vector<RunSummary>& runs, const CostMeasure& measure) {
  std::size_t name_width = 3, schedule_width = 8;
  for (const RunSummary& run : runs) {
    name_width = std::max(name_width, run.name.size());
    schedule_width = std::max(schedule_width, shortened(run.schedule).size());
  }
  const Metric& metric = find_metric(runs[0].metric);
  const bool has_best =
      std::any_of(runs.begin(), runs.end(), [](const RunSummary& run) { return run.best.has_value(); });
  std::string text = fmt::format("{:<{}}  {:<{}}  {:>13}  {:>9}  {:>7}  {:>14}  {:>13}  {:>5}  {:>12}{}\n",
                                 "run", name_width, "schedule", schedule_width, "test " + runs[0].metric,
                                 "held out", "cost", "GBitOps actual", "paper", "front", "time",
                                 has_best ? fmt::format("  {:>16}", "test at best") : "");
  const std::vector<bool> front = front_of(runs, measure);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunSummary& run = runs[i];
    const std::string valid = run.valid ? metric_text(metric, *run.valid) : "-";
    text +=
        fmt::format("{:<{}}  {:<{}}  {:>13}  {:>9}  {:>7.4f}  {:>14.1f}  {:>13.1f}  {:>5}  {:>12}{}\n",
                    run.name, name_width, shortened(run.schedule), schedule_width,
                    metric_text(metric, run.test), valid, run.cost.relative(measure.count),
                    run.cost.gbitops_actual, run.cost.gbitops_paper, front[i] ? "yes" : "",
                    duration_text(run.cost.seconds), has_best ? fmt::format("  {:>16}", best_text(run)) : "");
  }
  return text;
}

// Keys of the recipe, beside schedule and seed, in which runs that are compared differ.
std::set<std::string> differing_keys(const std::vector<RunSummary>& set) {
  std::set<std::string> keys;
  for (const RunSummary& run : set) {
    for (const auto& [key, value] : run.variant.items()) {
      if (key != "schedule" && set[0].variant.value(key, Json()) != value) keys.insert(key);
    }
  }
  return keys;
}

// What must be known to read a table right.
std::string notes_on(const std::vector<RunSummary>& set) {
  std::string text;
  std::set<std::string> folders;
  for (const RunSummary& run : set) folders.insert(run.data_dir);
  if (const auto keys = differing_keys(set); !keys.empty())
    text += fmt::format("The recipes of these runs differ in {}.\n", fmt::join(keys, ", "));
  if (folders.size() > 1) {
    text += fmt::format("Data of one name is taken for the same, though it lay in {}.\n",
                        fmt::join(folders, " and in "));
  }
  return text;
}

// "model (cifar-resnet8, cifar-resnet20)", "length (60, 2000 steps)"
std::vector<std::string> what_differs(const std::vector<RunSummary>& runs) {
  std::vector<std::string> result;
  const auto add_if_different = [&](const char* name, const auto& value_of, const char* unit) {
    std::set<std::decay_t<decltype(value_of(runs[0]))>> values;
    for (const RunSummary& run : runs) values.insert(value_of(run));
    if (values.size() > 1) result.push_back(fmt::format("{} ({}{})", name, fmt::join(values, ", "), unit));
  };
  add_if_different(
      "model", [](const RunSummary& run) { return run.model; }, "");
  add_if_different(
      "data", [](const RunSummary& run) { return run.data; }, "");
  add_if_different(
      "length", [](const RunSummary& run) { return run.steps; }, " steps");
  add_if_different(
      "metric", [](const RunSummary& run) { return run.metric; }, "");
  return result;
}

}  // namespace

Json variant_of(const Json& run) {
  static const Json all_keys = to_json(Recipe{}), determining = determining_keys(Recipe{});
  Json variant{{"schedule", run.at("schedule")}};
  for (const auto& [key, value] : run.at("recipe").items()) {
    const bool only_running = all_keys.contains(key) && !determining.contains(key);
    if (!only_running && !variant.contains(key)) variant[key] = value;
  }
  for (const char* key : {"seed", "data-dir", "bits", "grad-bits", "cycles", "k", "c"}) variant.erase(key);
  return variant;
}

RunCost cost_of(const RunResult& result) {
  const double paper = result.gbitops_paper, actual = result.gbitops_actual, relative = result.relative_cost;
  return {.relative_paper = relative,
          .relative_actual = paper > 0 ? relative * actual / paper : relative,
          .gbitops_paper = paper,
          .gbitops_actual = actual,
          .seconds = result.seconds};
}

RunSummary read_run_summary(const std::filesystem::path& folder) {
  const RunPaths paths{folder};
  if (!file_exists(paths.run())) {
    throw UserError(fmt::format("{} is not a run folder: it has no run.json", folder.string()));
  }
  if (!file_exists(paths.result())) {
    throw UserError(fmt::format("{} is not finished; continue it with: lowtide train --resume {}",
                                folder.string(), folder.string()));
  }
  const Json run = read_run_file(paths.run());
  if (run.value("format", Json()) != kRunFormat) {
    throw UserError(fmt::format("{}: run.json is of format {}; this program reads runs of format {}",
                                folder.string(), run.value("format", Json()).dump(), kRunFormat));
  }
  const RunResult result = read_run_result(paths.result());
  find_metric(result.metric);
  if (!result.test.metric)
    throw UserError(fmt::format("{}: test is null, not a number", paths.result().string()));
  try {
    const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
    return {.folder = folder,
            .name = name.string(),
            .schedule = run.at("schedule"),
            .model = run.at("recipe").at("model"),
            .data = data_name(run.at("recipe")),
            .metric = result.metric,
            .seed = run.at("seed"),
            .test = *result.test.metric,
            .valid = result.valid,
            .best = result.best,
            .data_dir = run.at("recipe").value("data-dir", ""),
            .variant = variant_of(run),
            .cost = cost_of(result),
            .eval_bits = result.eval_bits,
            .steps = result.steps};
  } catch (const Json::exception& error) {
    throw UserError(
        fmt::format("{}: lacks a value or holds a wrong one ({})", paths.run().string(), json_reason(error)));
  }
}

std::vector<std::vector<RunSummary>> comparable_sets(const std::vector<RunSummary>& runs) {
  std::vector<std::vector<RunSummary>> sets;
  for (const RunSummary& run : runs) {
    const auto same = std::find_if(sets.begin(), sets.end(), [&](const std::vector<RunSummary>& set) {
      return comparison_key(set[0]) == comparison_key(run);
    });
    (same == sets.end() ? sets.emplace_back() : *same).push_back(run);
  }
  return sets;
}

std::string comparison_text(const std::vector<RunSummary>& runs, const CostMeasure& measure) {
  const auto sets = comparable_sets(runs);
  std::string text;
  for (const std::vector<RunSummary>& set : sets) {
    if (sets.size() > 1) text += fmt::format("{} on {}, {} steps\n", set[0].model, set[0].data, set[0].steps);
    text += table(set, measure) + notes_on(set) + "\n";
  }
  if (sets.size() > 1) {
    text += fmt::format("These runs differ in {}: each table has a front of its own.\n",
                        fmt::join(what_differs(runs), ", in "));
  }
  text += fmt::format("cost: bit operations relative to fp32, {}: {}.\n", to_string(measure.count),
                      count_meaning(measure.count));
  return text +
         fmt::format("front: by {}, no other run is as cheap and as good; single runs, with their noise.\n",
                     measure_name(measure));
}

Json comparison_json(const std::vector<RunSummary>& runs, const CostMeasure& measure) {
  std::map<std::filesystem::path, bool> on_front;
  for (const std::vector<RunSummary>& set : comparable_sets(runs)) {
    const std::vector<bool> front = front_of(set, measure);
    for (std::size_t i = 0; i < set.size(); ++i) on_front[set[i].folder] = front[i];
  }
  Json list = Json::array();
  for (const RunSummary& run : runs) {
    list.push_back({{"run", run.name},
                    {"schedule", run.schedule},
                    {"model", run.model},
                    {"data", run.data},
                    {"steps", run.steps},
                    {"metric", run.metric},
                    {"test", run.test},
                    {"valid", run.valid ? Json(*run.valid) : Json()},
                    {"best", run.best ? to_json(*run.best) : Json()},
                    {"eval_bits", run.eval_bits},
                    {"relative_cost", run.cost.relative_paper},
                    {"relative_cost_actual", run.cost.relative_actual},
                    {"gbitops", {{"paper", run.cost.gbitops_paper}, {"actual", run.cost.gbitops_actual}}},
                    {"seconds", run.cost.seconds},
                    {"on_front", on_front.at(run.folder)}});
  }
  return list;
}

}  // namespace lowtide
