#include "lowtide/report/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"
#include "lowtide/cost/ledger.h"
#include "lowtide/cost/summary.h"
#include "lowtide/io/json_check.h"
#include "lowtide/recipe/keys.h"
#include "lowtide/recipe/recipe.h"
#include "lowtide/report/comparison.h"
#include "lowtide/report/landscape.h"
#include "lowtide/schedule/runs.h"
#include "lowtide/train/checkpoint_state.h"
#include "lowtide/train/learning_rate.h"
#include "lowtide/train/metrics_line.h"
#include "lowtide/train/run_folder.h"
#include "lowtide/train/run_result.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// More changes of bits than this a picture cannot show: it then has so many means.
constexpr std::size_t kMostBitRuns = 4096;

Json read_plain(const fs::path& path) { return is_plain_file(path) ? read_run_file(path) : Json(); }

// What the page needs to know of a schedule beyond its line.
Json describe_schedule(const std::string& line) {
  try {
    const ScheduleSpec spec = parse_schedule(line);
    const Bits peak = peak_bits(spec);
    Json json{{"name", spec.delay ? "delayed" : spec.name},
              {"low", spec.bits.low},
              {"high", peak.forward},
              {"static", static_line(peak)}};  // what its saving is told against
    if (spec.name == "deficit") json["deficit"] = spec.steps;
    if (spec.name == "window") json["window"] = {spec.from, spec.to};
    return json;
  } catch (const UserError&) {
    return {{"name", line.substr(0, line.find(' '))}};  // a newer program's: shown, not understood
  }
}

// The keys of the learning rate, as text, where the bits follow it; empty where they do not, or where the recipe is not one of
// this program's.
std::string rates_text(const std::string& line, const Json& recipe) {
  try {
    if (!parse_schedule(line).follows_rates()) return "";
    const Recipe read = recipe_from_json(recipe, "run.json");
    check(read);
    const Json all = to_json(read);
    Json rates = Json::object();
    for (const char* key : {"lr", "lr-schedule", "lr-steps", "lr-gamma", "lr-final", "lr-delay", "warmup"})
      rates[key] = all.at(key);
    return rates.dump();
  } catch (const UserError&) {
    return "";
  }
}

Rates read_rates(const std::string& text, std::int64_t total_steps) {
  if (text.empty()) return {};
  const Json rates = parse_json(text, "rates", "expected the keys of a learning rate");
  Recipe recipe;
  for (const RecipeKey& key : recipe_keys(recipe)) {
    if (rates.contains(key.name))
      std::visit([&](auto* value) { rates.at(key.name).get_to(*value); }, key.value);
  }
  return rates_of(recipe.training, total_steps);
}

// From the ledger in the last checkpoint: the one place in a run folder that knows of layers.
Json layers_of(const RunPaths& paths) {
  if (fs::is_symlink(paths.checkpoints()))
    throw UserError("checkpoints is a symbolic link, which is not followed");
  const std::vector<std::int64_t> steps = checkpoint_steps(paths);
  if (steps.empty()) throw UserError("there is no checkpoint, and so no ledger");
  const fs::path path = paths.checkpoint(steps.back());
  if (!is_plain_file(path)) throw UserError(fmt::format("{} is gone", path.filename().string()));
  return Ledger::from_state(read_checkpoint_state(path).at("ledger")).to_json().at("layers");
}

// A part of the report that a run may lack: its value, or why it is not there.
template <typename Read>
void add_part(Json& about, const std::string& key, Read read) {
  try {
    about[key] = read();
  } catch (const UserError& error) {
    about[key + "_missing"] = error.what();
  } catch (const Json::exception& error) {
    about[key + "_missing"] = fmt::format("not of this program's format ({})", json_reason(error));
  }
}

Json total_steps_of(const Json& run, const std::optional<RunResult>& result) {
  // Of a run that stopped early those that its schedule was laid over.
  if (result) return result->planned_steps.value_or(result->steps);
  const std::int64_t asked = run.at("recipe").value("steps", std::int64_t{0});
  return asked > 0 ? Json(asked) : Json();
}

// The task's metric: what a line has beside the keys that all tasks share.
std::string metric_name(const Json& result, const MetricsTable& train) {
  if (result.is_object()) return run_result_from_json(result, "result.json").metric;
  for (const Column& column : train.columns) {
    if (!is_training_key(column.name)) return column.name;
  }
  return "accuracy";
}

// Steps in a row with the same forward bits, or with this mean of them.
struct ForwardRun {
  double bits = 0;
  std::int64_t count = 0;
};

// Where only the gradient bits change, the run goes on.
std::vector<ForwardRun> forward_runs(const std::vector<BitRun>& runs) {
  std::vector<ForwardRun> result;
  for (const BitRun& run : runs) {
    if (result.empty() || result.back().bits != run.bits.forward)
      result.push_back({static_cast<double>(run.bits.forward), 0});
    result.back().count += run.count;
  }
  return result;
}

// Neighbours together, as many at a time as leave no more than a picture can show. fp32 has no place among
// numbers of bits, and stays by itself.
std::vector<ForwardRun> means(const std::vector<ForwardRun>& runs) {
  const std::size_t together = runs.size() / (kMostBitRuns / 2) + 1;
  std::vector<ForwardRun> result;
  std::size_t members = together;
  for (const ForwardRun& run : runs) {
    const bool apart = members == together || (run.bits == 0) != (result.back().bits == 0);
    if (apart) {
      result.push_back(run);
      members = 1;
      continue;
    }
    ForwardRun& mean = result.back();
    mean.bits +=
        (run.bits - mean.bits) * static_cast<double>(run.count) / static_cast<double>(mean.count + run.count);
    mean.count += run.count;
    ++members;
  }
  return result;
}

}  // namespace

bool is_plain_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (status.type() == fs::file_type::not_found) return false;
  if (error) throw UserError(fmt::format("{}: {}", path.filename().string(), error.message()));
  if (!fs::is_regular_file(status)) {
    throw UserError(fmt::format("{} is not a plain file{}", path.filename().string(),
                                fs::is_symlink(status) ? "; symbolic links are not followed" : ""));
  }
  return true;
}

Json read_run(const fs::path& folder) {
  const RunPaths paths{folder};
  const Json run = read_plain(paths.run()), whole_result = read_plain(paths.result());
  if (run.is_null()) throw UserError("run.json is missing");
  if (run.value("format", Json()) != kRunFormat) {
    throw UserError(fmt::format("run.json is of format {}; this program reads format {}",
                                run.value("format", Json()).dump(), kRunFormat));
  }
  std::optional<RunResult> result;
  if (whole_result.is_object()) result = run_result_from_json(whole_result, "result.json");
  try {
    const std::string line = run.at("schedule");
    Json about{{"schedule", line},
               {"spec", describe_schedule(line)},
               {"seed", run.at("seed")},
               {"model", run.at("recipe").at("model").get<std::string>()},
               {"data", run.at("recipe").value("data", "")},
               {"data_dir", run.at("recipe").value("data-dir", "")},
               {"variant", variant_of(run)},
               {"total_steps", total_steps_of(run, result)},
               {"result", whole_result}};
    if (const std::string rates = rates_text(line, run.at("recipe")); !rates.empty()) about["rates"] = rates;
    for (const char* key : {"program", "torch", "device", "threads", "started"})
      about[key] = run.value(key, Json());
    add_part(about, "layers", [&] { return layers_of(paths); });
    if (is_plain_file(landscape_path(folder)))
      add_part(about, "landscape", [&] { return read_landscape(landscape_path(folder)); });
    return about;
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("run.json is not of this format ({})", json_reason(error)));
  }
}

Json describe_lines(const Metrics& metrics, const Json& result) {
  const MetricsTable& train = metrics.train();
  Json last = Json::object();
  if (train.rows > 0) {
    for (const Column& column : train.columns) last[column.name] = column.values.back();
  }
  std::size_t looks = 0;  // at the layers
  for (const MetricsTable& table : metrics.tables) looks += table.split == kLayersSplit ? table.rows : 0;
  return {{"lines", train.rows}, {"looks", looks}, {"last", last}, {"metric", metric_name(result, train)}};
}

Json schedule_runs(const std::string& line, std::int64_t total_steps, const std::string& rates) {
  try {
    const ScheduleSpec spec = parse_schedule(line);
    if (spec.is_closed_loop() || total_steps <= 0) return nullptr;
    const std::vector<ForwardRun> runs = forward_runs(
        run_lengths(*make_schedule(spec, total_steps, read_rates(rates, total_steps)), total_steps));
    Json json = Json::array();
    for (const auto& [bits, count] : runs.size() > kMostBitRuns ? means(runs) : runs)
      json.push_back({bits, count});
    return json;
  } catch (const UserError&) {
    return nullptr;
  }
}

void ScheduleRuns::add(const Json& run) {
  if (!run.at("total_steps").is_number_integer()) return;
  const std::string line = run.at("schedule");
  const std::int64_t steps = run.at("total_steps");
  const std::string rates = run.value("rates", "");
  const std::string key = fmt::format("{}|{}{}{}", line, steps, rates.empty() ? "" : "|", rates);
  if (!runs_.contains(key)) runs_[key] = schedule_runs(line, steps, rates);
}

Json to_json(const std::vector<SkippedFolder>& skipped) {
  Json json = Json::array();
  for (const auto& [folder, reason] : skipped)
    json.push_back({{"path", folder.string()}, {"reason", reason}});
  return json;
}

}  // namespace lowtide
