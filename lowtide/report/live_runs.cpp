#include "lowtide/report/live_runs.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "lowtide/base/error.h"
#include "lowtide/report/landscape.h"
#include "lowtide/report/metrics_encode.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {

namespace fs = std::filesystem;

namespace {

// Several pages may ask: the folder is looked at as often as one would.
constexpr std::chrono::milliseconds kRefreshEvery{250};

// Whether the path, with every link in it resolved, still lies in the folder.
bool lies_in(const fs::path& root, const fs::path& path) {
  std::error_code error;
  const fs::path resolved = fs::canonical(path, error);
  return !error &&
         std::mismatch(root.begin(), root.end(), resolved.begin(), resolved.end()).first == root.end();
}

}  // namespace

LiveRuns::LiveRuns(const fs::path& root) : root_(fs::weakly_canonical(root)) {
  const std::lock_guard lock(mutex_);
  refresh();
}

LiveRuns::Stamp LiveRuns::stamp(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  return {status.st_ino, static_cast<std::uint64_t>(status.st_size),
          std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

// The folder of checkpoints stands for them: each one that comes or goes changes it.
std::vector<LiveRuns::Stamp> LiveRuns::stamps(const fs::path& folder) {
  const RunPaths paths{folder};
  return {stamp(paths.run()), stamp(paths.result()), stamp(landscape_path(folder)),
          stamp(paths.checkpoints())};
}

void LiveRuns::read_new_lines(const fs::path& folder, Run& run, const Stamp& before, const Stamp& now) {
  const bool same_file = now.inode == before.inode && now.size >= run.end;
  if (!same_file) {
    ++run.generation;
    run.end = 0;
    run.progress = describe_lines(parse_metrics("", ""), run.about.at("result"));
  }
  const fs::path path = RunPaths{folder}.metrics();
  if (!is_plain_file(path)) return;
  const Metrics added = read_metrics(path, run.end);
  run.end = added.end;
  Json progress = describe_lines(added, run.about.at("result"));
  for (const char* count : {"lines", "looks"}) {
    const std::uint64_t known = run.progress.at(count);
    progress[count] = known + progress.at(count).get<std::uint64_t>();
  }
  if (added.train().rows > 0) {
    run.progress = progress;
  } else {
    run.progress["looks"] = progress.at("looks");
  }
}

void LiveRuns::refresh_run(const fs::path& folder) {
  Run& run = runs_[folder];
  if (run.id == 0) run.id = ++next_id_;
  std::vector<Stamp> files = stamps(folder);
  const Stamp lines = stamp(RunPaths{folder}.metrics());
  const bool unchanged = files == run.files && lines == run.lines && run.revision > 0;
  if (unchanged) return;
  run.revision = revision_ + 1;
  const bool was_damaged = !run.problem.empty();
  run.problem.clear();
  try {
    if (was_damaged || files != run.files) run.about = read_run(folder);
    read_new_lines(folder, run, was_damaged ? Stamp() : run.lines, lines);
  } catch (const std::exception& error) {
    run.problem = skip_reason(error);
  }
  run.files = std::move(files);
  run.lines = lines;
}

void LiveRuns::refresh() {
  const auto now = std::chrono::steady_clock::now();
  if (refreshed_ && now - *refreshed_ < kRefreshEvery) return;
  refreshed_ = now;
  FoundRuns scan;
  try {
    scan = search_runs(root_);
  } catch (const std::exception& error) {
    scan.skipped.push_back({root_, skip_reason(error)});  // the folder itself went away
  }
  const std::set<fs::path> there(scan.runs.begin(), scan.runs.end());
  std::erase_if(runs_, [&](const auto& run) { return !there.contains(run.first); });
  for (const fs::path& folder : scan.runs) refresh_run(folder);
  foreign_ = std::move(scan.skipped);
  ++revision_;
}

Json LiveRuns::entry(const fs::path& folder, const Run& run) const {
  Json json{{"id", run.id},
            {"name", run_name(root_, folder)},
            {"path", folder.string()},
            {"generation", run.generation},
            {"end", run.end},
            {"changed", run.lines.modified / 1'000'000'000}};
  json.update(run.about);
  json.update(run.progress);
  return json;
}

Json LiveRuns::changes(std::uint64_t since) {
  const std::lock_guard lock(mutex_);
  refresh();
  std::vector<SkippedFolder> skipped = foreign_;
  ScheduleRuns schedules;
  Json ids = Json::array(), changed = Json::array();
  for (const auto& [folder, run] : runs_) {
    if (!run.problem.empty()) {
      skipped.push_back({folder, run.problem});
      continue;
    }
    ids.push_back(run.id);
    if (run.revision <= since) continue;
    schedules.add(run.about);
    changed.push_back(entry(folder, run));
  }
  return {{"revision", revision_},
          {"ids", std::move(ids)},
          {"runs", std::move(changed)},
          {"schedules", schedules.json()},
          {"skipped", to_json(skipped)}};
}

std::optional<std::string> LiveRuns::lines(std::uint64_t id, std::uint64_t generation, std::uint64_t from) {
  fs::path path;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(runs_.begin(), runs_.end(), [&](const auto& run) {
      return run.second.id == id && run.second.problem.empty();
    });
    if (found == runs_.end()) return std::nullopt;
    path = RunPaths{found->first}.metrics();
    if (found->second.generation != generation) from = 0;
    generation = found->second.generation;
  }
  if (!lies_in(root_, path) || !is_plain_file(path)) return std::nullopt;
  const Metrics metrics = read_metrics(path, from);
  return encode_metrics(metrics, {{"generation", generation}, {"from", from}, {"end", metrics.end}});
}

}  // namespace lowtide
