#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/io/file.h"
#include "lowtide/io/jsonl.h"
#include "lowtide/io/lease.h"
#include "lowtide/io/tensorboard.h"
#include "lowtide/recipe/recipe.h"
#include "lowtide/train/metrics_line.h"
#include "lowtide/train/run_result.h"

namespace lowtide {

constexpr int kRunFormat = 1;
constexpr const char* kScriptKey =
    "script";  // in run.json: what wrote a run that has no recipe of this program's

// The folder of one run, version 1; docs/run-folder.md is its contract.
struct RunPaths {
  std::filesystem::path folder;

  std::filesystem::path run() const { return folder / "run.json"; }
  std::filesystem::path metrics() const { return folder / "metrics.jsonl"; }
  std::filesystem::path result() const { return folder / "result.json"; }
  std::filesystem::path lease() const { return folder / "run.lease"; }
  std::filesystem::path checkpoints() const { return folder / "checkpoints"; }
  std::filesystem::path checkpoint(std::int64_t step) const;
  std::filesystem::path averaged() const { return checkpoints() / "averaged.safetensors"; }
  std::filesystem::path best() const { return checkpoints() / "best.safetensors"; }
};

// Whether the file is one that a run is made of (its run.json is there), so that nothing else may be written in its place.
bool belongs_to_run(const std::filesystem::path& file);

// Makes a folder and those above it, where they are missing; UserError where that fails.
void make_folders(const std::filesystem::path& folder);

// The step in the name of a checkpoint's file; nothing for any other file.
std::optional<std::int64_t> step_of_checkpoint(const std::filesystem::path& file);

// Steps that have a checkpoint, rising. A folder that cannot be read is a UserError, not one without checkpoints.
std::vector<std::int64_t> checkpoint_steps(const RunPaths& paths);

// Whether a run has left anything to lose: a line of metrics, a checkpoint, a result. A start that failed has not.
bool has_begun(const RunPaths& paths);

// The JSON object in a file of a run folder; UserError where it is missing or damaged.
Json read_run_file(const std::filesystem::path& path);

// The recipe in run.json; UserError where that is missing, damaged or of another format.
Recipe read_run_recipe(const RunPaths& paths);

// "cpu", "cuda", "cuda with TF32"
std::string device_name(const RunningOptions& running);

// The right to write a run, whose folder is there: UserError where another process has it. `say` gets a line where it must
// be waited for.
Lease take_run(
    const RunPaths& paths, const std::function<void(const std::string&)>& say = [](auto&) {});

// A run folder that this process writes to, and no other: a second one is refused. The lease is taken unless it is handed in.
class RunFolder {
 public:
  // A new run, also in the place of a start that failed: UserError if the folder holds one that has begun. `run` is the
  // content of run.json.
  static RunFolder create(const std::filesystem::path& folder, const Json& run,
                          std::optional<Lease> lease = std::nullopt);
  // Continues after `step`: what was logged later is dropped, and so are final evaluations, which follow the
  // last checkpoint.
  static RunFolder resume(const std::filesystem::path& folder, std::int64_t step,
                          std::optional<Lease> lease = std::nullopt);

  const RunPaths& paths() const { return paths_; }

  // UserError where another process took the run over, since this one slept for too long.
  void expect_held() const { lease_.expect_held(); }

  // The run gets the recipe's number of steps: what told its end is removed, run.json says the new length.
  void change_length(const TrainingOptions& training);

  // The run goes on from `step` with the recipe's device. Where that is not the one it had, run.json says so from now on, and
  // the former is returned in words.
  std::optional<std::string> change_device(const RunningOptions& running, std::int64_t step);

  // One object a line; numbers also go to TensorBoard as SPLIT/KEY.
  void log(const TrainingLine& line) { append(to_json(line), split_name(Split::kTrain)); }
  void log(const EvaluationLine& line) { append(to_json(line), split_name(line.split)); }
  void log(const LayersLine& line) { append(to_json(line), kLayersSplit); }
  void log(const ProbeLine& line) { append(to_json(line), kProbeSplit); }
  void log_layers(const Json& line) { append(line, kLayersSplit); }  // a LayersLine that another rank wrote

  void write_result(const RunResult& result);
  void keep_last_checkpoints(int count) const;

 private:
  RunFolder(const RunPaths& paths, std::optional<Lease> lease);

  void append(const Json& line, const char* split);

  RunPaths paths_;
  Lease lease_;
  std::optional<JsonlWriter> metrics_;
  std::unique_ptr<EventWriter> events_;
};

}  // namespace lowtide
