#include "lowtide/study/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lowtide/base/error.h"
#include "lowtide/io/lease.h"
#include "lowtide/report/comparison.h"
#include "lowtide/report/run_search.h"
#include "lowtide/study/folder.h"
#include "lowtide/train/metrics_line.h"
#include "lowtide/train/progress.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

std::string name_of(MemberState state) {
  switch (state) {
    case MemberState::kDone:
      return "done";
    case MemberState::kRunning:
      return "running";
    case MemberState::kSaved:
      return "saved";
    case MemberState::kFailed:
      return "failed";
    case MemberState::kWaiting:
      return "waiting";
  }
  LOWTIDE_CHECK(false, "an unknown state of a member");
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \r\n") + 1);
  return text;
}

// The last line of metrics, for how far it got and how long it took.
void read_progress(MemberStatus& status, const RunPaths& run) {
  if (!file_exists(run.metrics())) return;
  if (const auto line = last_logged_line(run.metrics())) {
    status.step = line->step.value_or(0);
    status.seconds = line->seconds.value_or(0);
  }
}

// Of the process that trains it, or of the one that runs its script.
std::optional<LeaseState> living_lease(const MemberPaths& paths) {
  for (const fs::path& path : {paths.run.lease(), paths.lease()}) {
    if (const auto lease = lease_state(path); lease && lease->is_alive()) return lease;
  }
  return std::nullopt;
}

MemberStatus status_of(const Member& member, const fs::path& folder) {
  const MemberPaths paths(folder, member);
  MemberStatus status{.name = member.name, .steps = member.recipe.training.steps};
  if (file_exists(paths.run.result())) {
    status.state = MemberState::kDone;
    status.step = status.steps;
    status.seconds = read_run_summary(paths.run.folder).cost.seconds;
  } else if (const auto lease = living_lease(paths)) {
    status.state = MemberState::kRunning;
    if (lease->who) {
      status.note = describe(*lease->who);
      status.host = lease->who->host;
    }
    read_progress(status, paths.run);
  } else if (file_exists(paths.failure())) {
    status.state = MemberState::kFailed;
    read_progress(status, paths.run);
    status.note = trimmed(read_text_file(paths.failure()));
  } else if (file_exists(paths.run.run())) {
    read_progress(status, paths.run);
    // One that was killed before its first checkpoint begins again.
    const std::vector<std::int64_t> checkpoints = checkpoint_steps(paths.run);
    status.step = checkpoints.empty() ? 0 : checkpoints.back();
    if (!checkpoints.empty()) status.state = MemberState::kSaved;
  }
  return status;
}

double seconds_per_step(const std::vector<MemberStatus>& members, bool finished) {
  double seconds = 0, steps = 0;
  for (const MemberStatus& member : members) {
    if ((member.state == MemberState::kDone) != finished || member.state == MemberState::kFailed) continue;
    seconds += member.seconds;
    steps += static_cast<double>(member.step);
  }
  return steps > 0 ? seconds / steps : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::vector<MemberStatus> read_status(const std::vector<Member>& members, const fs::path& folder) {
  std::vector<MemberStatus> result;
  for (const Member& member : members) {
    try {
      result.push_back(status_of(member, folder));
    } catch (const std::exception& damaged) {
      result.push_back({.name = member.name,
                        .state = MemberState::kFailed,
                        .steps = member.recipe.training.steps,
                        .note = skip_reason(damaged)});
    }
  }
  return result;
}

void add_queue(std::vector<MemberStatus>& members, const SlurmQueue& queue) {
  if (!queue.is_known) return;
  const auto is_waiting = [](MemberState state) {
    return state == MemberState::kSaved || state == MemberState::kWaiting;
  };
  std::vector<bool> queued(members.size());
  for (const SlurmTask& task : queue.tasks) {
    MemberStatus& member = members[task.index];
    queued[task.index] = true;
    if (member.state == MemberState::kDone || member.state == MemberState::kRunning) continue;
    if (task.state == "RUNNING") {
      member.state = MemberState::kRunning;
      member.note = fmt::format("job {} starts on {}", task.name(), task.nodes);
      continue;
    }
    if (member.state == MemberState::kFailed) member.state = MemberState::kWaiting;  // it is tried again
    member.note = task.state == "PENDING" ? fmt::format("job {} is queued ({})", task.name(), task.reason)
                                          : fmt::format("job {}: {}", task.name(), task.state);
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!queued[i] && is_waiting(members[i].state))
      members[i].note = "not in the queue: submit the study again";
  }
}

double seconds_left(const std::vector<MemberStatus>& members, int at_once) {
  double steps = 0;
  std::int64_t unfinished = 0;
  for (const MemberStatus& member : members) {
    if (member.state == MemberState::kDone || member.state == MemberState::kFailed) continue;
    steps += static_cast<double>(member.steps - member.step);
    ++unfinished;
  }
  if (unfinished == 0) return 0;
  const double by_finished = seconds_per_step(members, true);
  const double rate = std::isfinite(by_finished) ? by_finished : seconds_per_step(members, false);
  return steps * rate / static_cast<double>(std::clamp<std::int64_t>(at_once, 1, unfinished));
}

std::string status_text(const std::vector<MemberStatus>& members) {
  std::size_t width = 6;
  for (const MemberStatus& member : members) width = std::max(width, member.name.size());
  std::string text = fmt::format("{:>5}  {:<{}}  {:<7}  {:>17}  {:>12}\n", "index", "member", width, "state",
                                 "steps", "time");
  for (const MemberStatus& member : members) {
    const std::string steps = member.step > 0 || member.state == MemberState::kRunning
                                  ? fmt::format("{}/{}", member.step, member.steps)
                                  : "";
    const std::string time = member.seconds > 0 ? duration_text(member.seconds) : "";
    text += trimmed(fmt::format("{:>5}  {:<{}}  {:<7}  {:>17}  {:>12}  {}", &member - members.data(),
                                member.name, width, name_of(member.state), steps, time, member.note)) +
            "\n";
  }
  text += "\n";
  int running = 0;
  for (const MemberState state : {MemberState::kDone, MemberState::kRunning, MemberState::kSaved,
                                  MemberState::kFailed, MemberState::kWaiting}) {
    const auto count = std::count_if(members.begin(), members.end(),
                                     [&](const MemberStatus& member) { return member.state == state; });
    if (count > 0) text += fmt::format("{} {}, ", count, name_of(state));
    if (state == MemberState::kRunning) running = static_cast<int>(count);
  }
  const double left = seconds_left(members, running);
  return text + fmt::format("{} in all; time left: {}{}\n", members.size(), duration_text(left),
                            running > 1 ? fmt::format(" with {} at once", running) : "");
}

Json to_json(const std::vector<MemberStatus>& members) {
  Json list = Json::array();
  for (const MemberStatus& member : members) {
    list.push_back({{"index", list.size()},
                    {"member", member.name},
                    {"state", name_of(member.state)},
                    {"step", member.step},
                    {"steps", member.steps},
                    {"seconds", member.seconds}});
    if (!member.host.empty()) list.back()["host"] = member.host;
    if (!member.note.empty()) list.back()["note"] = member.note;
  }
  return list;
}

}  // namespace lowtide
