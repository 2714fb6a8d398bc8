#include "lowtide/train/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "lowtide/base/error.h"
#include "lowtide/io/json_check.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRunFileBytes = std::size_t{1} << 28;  // a landscape of 1001 x 1001 has 20 MB

constexpr std::string_view kCheckpointPrefix = "step-";
constexpr std::string_view kCheckpointSuffix = ".safetensors";

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:08}{}", kCheckpointPrefix, step, kCheckpointSuffix);
}

void expect_not_begun(const RunPaths& paths) {
  if (!has_begun(paths)) return;
  throw UserError(fmt::format(
      "{} holds a run already{}, remove it, or choose another --out", paths.folder.string(),
      file_exists(paths.run()) ? "; continue it with --resume" : ", which lacks its run.json: mend that"));
}

}  // namespace

bool belongs_to_run(const fs::path& file) {
  std::error_code none;
  const fs::path whole = fs::weakly_canonical(file, none), folder = whole.parent_path();
  const RunPaths run{folder};
  if (whole == run.run() || whole == run.metrics() || whole == run.result()) return file_exists(run.run());
  const RunPaths above{folder.parent_path()};
  return folder == above.checkpoints() && file_exists(above.run());
}

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw UserError(
        fmt::format("cannot make the folder {}: {}; choose another place", folder.string(), error.message()));
  }
}

fs::path RunPaths::checkpoint(std::int64_t step) const { return checkpoints() / checkpoint_name(step); }

std::optional<std::int64_t> step_of_checkpoint(const fs::path& file) {
  const std::string name = file.filename().string();
  if (!name.starts_with(kCheckpointPrefix)) return std::nullopt;
  std::int64_t step = 0;
  std::from_chars(name.data() + kCheckpointPrefix.size(), name.data() + name.size(), step);
  return step >= 0 && name == checkpoint_name(step) ? std::optional(step) : std::nullopt;
}

std::vector<std::int64_t> checkpoint_steps(const RunPaths& paths) {
  std::vector<std::int64_t> steps;
  if (!file_exists(paths.checkpoints())) return steps;
  for (const fs::path& file : folder_entries(paths.checkpoints())) {
    if (const auto step = step_of_checkpoint(file)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

bool has_begun(const RunPaths& paths) {
  return file_exists(paths.result()) || !checkpoint_steps(paths).empty() ||
         (file_exists(paths.metrics()) && fs::file_size(paths.metrics()) > 0);
}

Json read_run_file(const fs::path& path) {
  Json json = parse_json(read_text_file(path, kMaxRunFileBytes), path.string(), "the file is damaged");
  if (!json.is_object())
    throw UserError(fmt::format("{}: not a JSON object; the file is damaged", path.string()));
  return json;
}

Recipe read_run_recipe(const RunPaths& paths) {
  const Json run = read_run_file(paths.run());
  if (run.value("format", Json()) != kRunFormat) {
    throw UserError(fmt::format("{}: format {}; this program reads runs of format {}", paths.run().string(),
                                run.value("format", Json()).dump(), kRunFormat));
  }
  if (run.contains(kScriptKey)) {
    throw UserError(fmt::format(
        "{}: this run was written by the script {}, which alone knows its network; lowtide can compare and "
        "report it",
        paths.folder.string(), run.at(kScriptKey).dump()));
  }
  return recipe_from_json(run.value("recipe", Json()), paths.run().string());
}

Lease take_run(const RunPaths& paths, const std::function<void(const std::string&)>& say) {
  return Lease(paths.lease(), {.taken = "another process is writing this run", .say = say});
}

RunFolder::RunFolder(const RunPaths& paths, std::optional<Lease> lease)
    : paths_(paths), lease_(lease ? std::move(*lease) : take_run(paths)) {}

RunFolder RunFolder::create(const fs::path& folder, const Json& run, std::optional<Lease> lease) {
  const RunPaths paths{folder};
  expect_not_begun(paths);
  make_folders(paths.checkpoints());
  RunFolder result(paths, std::move(lease));
  expect_not_begun(paths);  // by the one that had the lease before
  write_atomically(paths.run(), run.dump(2) + "\n");
  result.metrics_.emplace(paths.metrics());
  result.events_ = std::make_unique<EventWriter>(folder);
  return result;
}

RunFolder RunFolder::resume(const fs::path& folder, std::int64_t step, std::optional<Lease> lease) {
  const RunPaths paths{folder};
  make_folders(paths.checkpoints());
  RunFolder result(paths, std::move(lease));
  if (file_exists(paths.metrics())) {
    truncate_jsonl(paths.metrics(), [&](const Json& json) {
      const LoggedLine line = logged_line(json, paths.metrics().string());
      return !line.step || (*line.step <= step && !line.is_final);
    });
  }
  result.metrics_.emplace(paths.metrics());
  result.events_ = std::make_unique<EventWriter>(folder);
  result.events_->session_start(step + 1);
  return result;
}

void RunFolder::change_length(const TrainingOptions& training) {
  // In this order: a run without a result is one that is not finished, whatever its length.
  for (const fs::path& end : {paths_.result(), paths_.averaged()}) remove_file(end);
  Json run = read_run_file(paths_.run());
  run["recipe"]["steps"] = training.steps;
  run["recipe"]["epochs"] = training.epochs;
  write_atomically(paths_.run(), run.dump(2) + "\n");
}

std::string device_name(const RunningOptions& running) {
  return running.device + (running.device == "cuda" && running.tf32 ? " with TF32" : "");
}

std::optional<std::string> RunFolder::change_device(const RunningOptions& running, std::int64_t step) {
  constexpr const char* kKey = "device_changes";
  Json run = read_run_file(paths_.run());
  std::string was = device_name(read_run_recipe(paths_).running), is = device_name(running);
  Json changes = Json::array();
  try {
    for (const Json& change : run.value(kKey, Json::array())) {
      if (change.at("step").get<std::int64_t>() >= step) continue;  // of steps that are made anew
      was = change.at("device");
      changes.push_back(change);
    }
  } catch (const Json::exception&) {
    throw UserError(fmt::format("{}: {} is {}, not a list of steps and devices; the file is damaged",
                                paths_.run().string(), kKey, run.at(kKey).dump()));
  }
  if (was != is) changes.push_back({{"step", step}, {"device", is}});
  if (changes != run.value(kKey, Json::array())) {
    run[kKey] = changes;
    write_atomically(paths_.run(), run.dump(2) + "\n");
  }
  return was != is ? std::optional(was) : std::nullopt;
}

void RunFolder::append(const Json& line, const char* split) {
  expect_held();
  metrics_->append(line);
  for (const auto& [key, value] : line.items()) {
    if (value.is_number() && key != kStepKey)
      events_->scalar(fmt::format("{}/{}", split, key), value, line.at(kStepKey));
  }
  events_->flush();
}

void RunFolder::write_result(const RunResult& result) {
  expect_held();
  metrics_->sync();
  write_atomically(paths_.result(), to_json(result).dump(2) + "\n");
}

void RunFolder::keep_last_checkpoints(int count) const {
  const std::vector<std::int64_t> steps = checkpoint_steps(paths_);
  const auto surplus = static_cast<std::ptrdiff_t>(steps.size()) - count;
  for (std::ptrdiff_t i = 0; i < surplus; ++i)
    remove_file(paths_.checkpoint(steps[static_cast<std::size_t>(i)]));
}

}  // namespace lowtide
