#include "lowtide/train/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

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

FileDescriptor take_lock(const RunPaths& paths) {
  FileDescriptor lock = open_for_writing(paths.lock(), O_CLOEXEC);
  if (flock(lock.number(), LOCK_EX | LOCK_NB) != 0) {
    throw UserError(fmt::format("{}: another process is writing this run", paths.folder.string()));
  }
  return lock;
}

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kCheckpointPrefix) || !name.ends_with(kCheckpointSuffix)) return std::nullopt;
  const char* first = name.data() + kCheckpointPrefix.size();
  const char* last = name.data() + name.size() - kCheckpointSuffix.size();
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(first, last, step);
  return error == std::errc() && end == last && first != last ? std::optional(step) : std::nullopt;
}

}  // namespace

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UserError(fmt::format("cannot make the folder {}: {}", folder.string(), error.message()));
}

fs::path RunPaths::checkpoint(std::int64_t step) const {
  return checkpoints() / fmt::format("{}{:08}{}", kCheckpointPrefix, step, kCheckpointSuffix);
}

std::vector<std::int64_t> checkpoint_steps(const RunPaths& paths) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(paths.checkpoints(), error)) {
    if (const auto step = step_of(entry.path().filename().string())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
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
  return recipe_from_json(run.value("recipe", Json()), paths.run().string());
}

RunFolder::RunFolder(const fs::path& folder, FileDescriptor lock) : paths_{folder}, lock_(std::move(lock)) {}

RunFolder RunFolder::create(const fs::path& folder, const Json& run) {
  const RunPaths paths{folder};
  if (fs::exists(paths.run())) {
    throw UserError(
        fmt::format("{} holds a run already; continue it with --resume, remove it, or choose another --out",
                    folder.string()));
  }
  make_folders(paths.checkpoints());
  RunFolder result(folder, take_lock(paths));
  write_atomically(paths.run(), run.dump(2) + "\n");
  result.metrics_.emplace(paths.metrics());
  result.events_ = std::make_unique<EventWriter>(folder);
  return result;
}

RunFolder RunFolder::resume(const fs::path& folder, std::int64_t step) {
  const RunPaths paths{folder};
  make_folders(paths.checkpoints());
  RunFolder result(folder, take_lock(paths));
  if (fs::exists(paths.metrics())) {
    truncate_jsonl(paths.metrics(), [&](const Json& line) {
      const auto logged = line.find("step");
      if (logged == line.end()) return true;
      if (!logged->is_number_integer())
        throw UserError(fmt::format("{}: a line's step is {}, not a whole number; the file is damaged",
                                    paths.metrics().string(), logged->dump()));
      return logged->get<std::int64_t>() <= step && !line.value("final", false);
    });
  }
  result.metrics_.emplace(paths.metrics());
  result.events_ = std::make_unique<EventWriter>(folder);
  result.events_->session_start(step + 1);
  return result;
}

void RunFolder::log(const Json& line) {
  metrics_->append(line);
  const std::int64_t step = line.at("step");
  const std::string prefix = line.value("split", "train") + "/";
  for (const auto& [key, value] : line.items()) {
    if (value.is_number() && key != "step") events_->scalar(prefix + key, value, step);
  }
  events_->flush();
}

void RunFolder::write_result(const Json& result) {
  metrics_->sync();
  write_atomically(paths_.result(), result.dump(2) + "\n");
}

void RunFolder::keep_last_checkpoints(int count) const {
  const std::vector<std::int64_t> steps = checkpoint_steps(paths_);
  const auto surplus = static_cast<std::ptrdiff_t>(steps.size()) - count;
  for (std::ptrdiff_t i = 0; i < surplus; ++i)
    fs::remove(paths_.checkpoint(steps[static_cast<std::size_t>(i)]));
}

}  // namespace lowtide
