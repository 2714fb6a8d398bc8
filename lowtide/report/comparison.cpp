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
  const Json test = run.best.is_object() ? run.best.at("test") : Json();
  if (test.is_null()) return "-";
  return fmt::format("{} at {}", metric_text(find_metric(run.metric), test.get<double>()),
                     run.best.at("step").get<std::int64_t>());
}

std::string table(const std::vector<RunSummary>& runs, const CostMeasure& measure) {
  std::size_t name_width = 3, schedule_width = 8;
  for (const RunSummary& run : runs) {
    name_width = std::max(name_width, run.name.size());
    schedule_width = std::max(schedule_width, run.schedule.size());
  }
  const Metric& metric = find_metric(runs[0].metric);
  const bool has_best =
      std::any_of(runs.begin(), runs.end(), [](const RunSummary& run) { return run.best.is_object(); });
  std::string text = fmt::format("{:<{}}  {:<{}}  {:>13}  {:>9}  {:>7}  {:>14}  {:>13}  {:>5}  {:>12}{}\n",
                                 "run", name_width, "schedule", schedule_width, "test " + runs[0].metric,
                                 "held out", "cost", "GBitOps actual", "paper", "front", "time",
                                 has_best ? fmt::format("  {:>16}", "test at best") : "");
  const std::vector<bool> front = front_of(runs, measure);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunSummary& run = runs[i];
    const std::string valid = run.valid.is_null() ? "-" : metric_text(metric, run.valid.get<double>());
    text += fmt::format("{:<{}}  {:<{}}  {:>13}  {:>9}  {:>7.4f}  {:>14.1f}  {:>13.1f}  {:>5}  {:>12}{}\n",
                        run.name, name_width, run.schedule, schedule_width, metric_text(metric, run.test),
                        valid, run.cost.relative(measure.count), run.cost.gbitops_actual,
                        run.cost.gbitops_paper, front[i] ? "yes" : "", duration_text(run.cost.seconds),
                        has_best ? fmt::format("  {:>16}", best_text(run)) : "");
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
  const auto look = [&](const char* name, const auto& value_of, const char* unit) {
    std::set<std::decay_t<decltype(value_of(runs[0]))>> values;
    for (const RunSummary& run : runs) values.insert(value_of(run));
    if (values.size() > 1) result.push_back(fmt::format("{} ({}{})", name, fmt::join(values, ", "), unit));
  };
  look(
      "model", [](const RunSummary& run) { return run.model; }, "");
  look(
      "data", [](const RunSummary& run) { return run.data; }, "");
  look(
      "length", [](const RunSummary& run) { return run.steps; }, " steps");
  look(
      "metric", [](const RunSummary& run) { return run.metric; }, "");
  return result;
}

}  // namespace

Json variant_of(const Json& run) {
  static const Json everything = to_json(Recipe{}), essential = determining_keys(Recipe{});
  Json variant{{"schedule", run.at("schedule")}};
  for (const auto& [key, value] : run.at("recipe").items()) {
    const bool only_running = everything.contains(key) && !essential.contains(key);
    if (!only_running && !variant.contains(key)) variant[key] = value;
  }
  for (const char* key : {"seed", "data-dir", "bits", "grad-bits", "cycles", "k", "c"}) variant.erase(key);
  return variant;
}

RunCost cost_of_result(const Json& result) {
  const double paper = result.at("gbitops").at("paper"), actual = result.at("gbitops").at("actual");
  const double relative = result.at("relative_cost");
  return {.relative_paper = relative,
          .relative_actual = paper > 0 ? relative * actual / paper : relative,
          .gbitops_paper = paper,
          .gbitops_actual = actual,
          .seconds = result.at("seconds")};
}

namespace {

// Throws what JSON throws where a value is missing or of another type.
void check_best(const Json& best) {
  best.at("step").get<std::int64_t>();
  if (const Json& test = best.at("test"); !test.is_null()) test.get<double>();
}

}  // namespace

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
    if (const Json best = result.value("best", Json()); !best.is_null()) check_best(best);
    const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
    return {.folder = folder,
            .name = name.string(),
            .schedule = run.at("schedule"),
            .model = run.at("recipe").at("model"),
            .data = data_name(run.at("recipe")),
            .metric = result.at("metric"),
            .seed = run.at("seed"),
            .test = result.at("test"),
            .valid = result.at("valid"),
            .best = result.value("best", Json()),
            .data_dir = run.at("recipe").value("data-dir", ""),
            .variant = variant_of(run),
            .cost = cost_of_result(result),
            .eval_bits = result.at("eval_bits"),
            .steps = result.at("steps")};
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("{}: run.json or result.json lacks a value or holds a wrong one ({})",
                                folder.string(), json_reason(error)));
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
                    {"valid", run.valid},
                    {"best", run.best},
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
