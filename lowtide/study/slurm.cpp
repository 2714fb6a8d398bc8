#include "lowtide/study/slurm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"
#include "lowtide/base/whole_number.h"
#include "lowtide/io/file.h"
#include "lowtide/io/json_check.h"
#include "lowtide/schedule/text.h"
#include "lowtide/study/command.h"
#include "lowtide/study/folder.h"
#include "lowtide/study/status.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// Before the time is up, by which a run has finished its step and saved.
constexpr int kWarningSeconds = 60;

constexpr std::chrono::seconds kPatience{20};  // squeue asks a controller that is away for minutes

fs::path jobs_file(const fs::path& folder) { return folder / "slurm.jobs"; }
fs::path script_file(const fs::path& folder) { return folder / "slurm.sh"; }

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0)
    return std::nullopt;
  return value;
}

// What a program says in the end: the rest is on the way to it.
std::string last_line(const CommandEnd& end) {
  std::string text = end.error.empty() ? end.out : end.error;
  text.erase(text.find_last_not_of(" \r\n") + 1);
  text = text.substr(text.find_last_of('\n') + 1);
  return text.empty() ? fmt::format("exit code {}", end.code) : text;
}

// A line that sbatch reads. A file's name may hold what it takes for the job's number (%A).
std::string directive(const std::string& name, const std::string& value) {
  if (std::any_of(value.begin(), value.end(),
                  [](unsigned char c) { return c < ' ' || c == '"' || c == '\\'; }))
    throw UserError(fmt::format("{} is {}; expected no quotes, backslashes or control characters for SLURM",
                                name, shown(value)));
  const bool plain = value.find_first_of(" '#;$&|<>()*?[]{}~!`") == std::string::npos;
  return fmt::format("#SBATCH --{}={}\n", name, plain ? value : '"' + value + '"');
}

std::string percents_doubled(const std::string& path) {
  std::string result;
  for (const char c : path) result += c == '%' ? "%%" : std::string(1, c);
  return result;
}

// A number as it is, or, in SLURM from 23.02 on, {"set": true, "infinite": false, "number": 7}.
std::optional<std::int64_t> slurm_number(const Json& job, const char* key) {
  const Json value = job.value(key, Json());
  if (is_whole_number(value, 0, kMostCounted)) return value.get<std::int64_t>();
  if (value.is_object() && value.value("set", Json(false)) == true &&
      is_whole_number(value.value("number", Json()), 0, kMostCounted))
    return value.at("number").get<std::int64_t>();
  return std::nullopt;
}

// A word, or from 23.11 on a list of them.
std::string slurm_word(const Json& job, const char* key) {
  const Json value = job.value(key, Json());
  const Json& word = value.is_array() && !value.empty() ? value.at(0) : value;
  return word.is_string() ? word.get<std::string>() : "";
}

bool has_ended(const std::string& state) {
  static const std::set<std::string, std::less<>> ended{"BOOT_FAIL",     "CANCELLED", "COMPLETED",
                                                        "DEADLINE",      "FAILED",    "NODE_FAIL",
                                                        "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"};
  return ended.contains(state);
}

void add_tasks(std::vector<SlurmTask>& tasks, const Json& job, const std::vector<std::int64_t>& jobs,
               std::size_t members) {
  const auto array = slurm_number(job, "array_job_id");
  SlurmTask task{.job = array.value_or(0),
                 .index = 0,
                 .state = slurm_word(job, "job_state"),
                 .reason = slurm_word(job, "state_reason"),
                 .nodes = slurm_word(job, "nodes")};
  if (std::find(jobs.begin(), jobs.end(), task.job) == jobs.end() || has_ended(task.state)) return;
  const auto single = slurm_number(job, "array_task_id");
  // Those that wait are one entry, with a list.
  const std::string text = single ? fmt::to_string(*single) : slurm_word(job, "array_task_string");
  for (const std::size_t index : parse_index_ranges(text, members).value_or(std::vector<std::size_t>())) {
    task.index = index;
    tasks.push_back(task);
  }
}

// As an environment variable: a list of tasks that wait is cut after 64 characters otherwise. By the user: asked of jobs by their
// numbers, squeue fails where it has forgotten one; and --me is newer than some clusters.
std::vector<std::string> squeue_command() {
  return {"env", "SLURM_BITSTR_LEN=0", "squeue", "--json", fmt::format("--user={}", geteuid())};
}

std::vector<std::size_t> to_submit(const Study& study, const fs::path& folder) {
  const std::vector<Member> all = members(study);
  std::vector<MemberStatus> status = read_status(all, folder);
  const SlurmQueue queue = ask_squeue(folder, all.size());
  if (!queue.problem.empty())
    throw UserError(fmt::format("{}; nothing is submitted, since runs may be queued already: try again later",
                                queue.problem));
  std::set<std::size_t> queued;
  for (const SlurmTask& task : queue.tasks) queued.insert(task.index);
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const MemberState state = status[i].state;
    if (state != MemberState::kDone && state != MemberState::kRunning && !queued.contains(i))
      indices.push_back(i);
  }
  return indices;
}

}  // namespace

std::string index_ranges(const std::vector<std::size_t>& indices) {
  std::string text;
  for (std::size_t i = 0; i < indices.size();) {
    std::size_t last = i;
    while (last + 1 < indices.size() && indices[last + 1] == indices[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += last == i ? fmt::to_string(indices[i]) : fmt::format("{}-{}", indices[i], indices[last]);
    i = last + 1;
  }
  return text;
}

std::optional<std::vector<std::size_t>> parse_index_ranges(std::string_view text, std::size_t end) {
  std::set<std::size_t> indices;
  text = text.substr(0, text.find('%'));
  for (std::string_view part : split(text, ',')) {
    const auto colon = part.find(':');
    const auto step = colon == part.npos ? std::optional<std::int64_t>(1) : number(part.substr(colon + 1));
    part = part.substr(0, colon);
    const auto dash = part.find('-');
    const auto first = number(part.substr(0, dash));
    const auto last = dash == part.npos ? first : number(part.substr(dash + 1));
    if (!first || !last || !step || *step < 1) return std::nullopt;
    const auto bound = std::min(*last, static_cast<std::int64_t>(end) - 1);
    for (std::int64_t index = *first; index <= bound;
         index += std::min(*step, static_cast<std::int64_t>(end)))
      indices.insert(static_cast<std::size_t>(index));
  }
  return std::vector<std::size_t>(indices.begin(), indices.end());
}

std::string slurm_script(const fs::path& program, const fs::path& folder,
                         const std::vector<std::size_t>& indices, int threads, const SlurmOptions& options) {
  const fs::path study = fs::absolute(folder).lexically_normal();
  std::string text =
      "#!/bin/bash\n"
      "# Written by lowtide: the runs of a study, one a task of the array. It can be edited, and submitted "
      "again by sbatch.\n";
  const std::string limit = options.array_limit > 0 ? fmt::format("%{}", options.array_limit) : "";
  text += directive("job-name", study.filename().empty() ? study.parent_path().filename() : study.filename());
  text += directive("array", index_ranges(indices) + limit);
  text += "#SBATCH --ntasks=1\n";
  if (threads > 0) text += fmt::format("#SBATCH --cpus-per-task={}\n", threads);
  if (!options.partition.empty()) text += directive("partition", options.partition);
  if (!options.time.empty()) text += directive("time", options.time);
  if (options.gpus > 0) text += fmt::format("#SBATCH --gpus={}\n", options.gpus);
  text += directive("chdir", fs::current_path());  // which paths in the recipe are relative to
  text += directive("output", percents_doubled(study / "slurm-") + "%A_%a.out");
  text += "#SBATCH --open-mode=append\n#SBATCH --requeue\n";
  text += fmt::format("#SBATCH --signal=TERM@{}\n\n", kWarningSeconds);
  if (threads > 0) text += "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n";
  text += "# By srun: SLURM signals the steps of a job, and not this shell.\n";
  text += fmt::format("srun {} study member {} \"$SLURM_ARRAY_TASK_ID\"\n", shell_word(program),
                      shell_word(study));
  text +=
      "code=$?\n"
      "# Stopped by SIGTERM, after it saved: preempted, or its time is nearly up. A job that was cancelled "
      "is not queued again.\n"
      "if [ \"$code\" -eq 143 ]; then\n"
      "  scontrol requeue \"${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}\"\n"
      "fi\n"
      "exit \"$code\"\n";
  return text;
}

std::string SlurmTask::name() const { return fmt::format("{}_{}", job, index); }

std::vector<SlurmTask> parse_squeue(std::string_view text, const std::vector<std::int64_t>& jobs,
                                    std::size_t members) {
  const Json json = parse_json(text, "squeue --json", "expected a list of jobs");
  std::vector<SlurmTask> tasks;
  try {
    for (const Json& job : json.at("jobs")) add_tasks(tasks, job, jobs, members);
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("squeue --json: not a list of jobs ({})", json_reason(error)));
  }
  return tasks;
}

std::vector<std::int64_t> slurm_jobs(const fs::path& folder) {
  std::vector<std::int64_t> jobs;
  if (!file_exists(jobs_file(folder))) return jobs;
  const std::string text = read_text_file(jobs_file(folder));
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    const auto job = number(line);
    if (!job)
      throw UserError(
          fmt::format("{}: not a list of job numbers; the file is damaged", jobs_file(folder).string()));
    jobs.push_back(*job);
  }
  return jobs;
}

SlurmQueue ask_squeue(const fs::path& folder, std::size_t members) {
  const std::vector<std::int64_t> jobs = slurm_jobs(folder);
  if (jobs.empty()) return {};
  const CommandEnd end = run_command(squeue_command(), kPatience);
  if (end.code != 0) return {.problem = fmt::format("SLURM does not tell of its queue: {}", last_line(end))};
  try {
    return {.is_known = true, .tasks = parse_squeue(end.out, jobs, members)};
  } catch (const UserError& error) {
    return {.problem = error.what()};
  }
}

std::optional<Submission> submit_to_slurm(const Study& study, const fs::path& folder,
                                          const SlurmOptions& options) {
  const std::vector<std::size_t> indices = to_submit(study, folder);
  if (indices.empty()) return std::nullopt;
  const fs::path script = script_file(folder);
  write_atomically(script, slurm_script(fs::read_symlink("/proc/self/exe"), folder, indices,
                                        study.recipe.running.threads, options));
  const CommandEnd end = run_command({"sbatch", "--parsable", script.string()});
  const auto job = number(std::string_view(end.out).substr(0, end.out.find_first_of(";\n")));  // 4711;CLUSTER
  if (end.code == 127)
    throw UserError(
        fmt::format("{}; is SLURM on this machine? The script is {}", last_line(end), script.string()));
  if (end.code != 0 || !job)
    throw UserError(fmt::format("sbatch did not take {}: {}", script.string(), last_line(end)));
  std::vector<std::int64_t> jobs = slurm_jobs(folder);
  jobs.push_back(*job);
  write_atomically(jobs_file(folder), fmt::format("{}\n", fmt::join(jobs, "\n")));
  return Submission{.job = *job, .members = indices.size()};
}

std::vector<std::int64_t> cancel_in_slurm(const Study& study, const fs::path& folder) {
  if (slurm_jobs(folder).empty()) {
    throw UserError(
        fmt::format("{}: this study was not submitted to SLURM; stop a run where it is trained, as "
                    "`lowtide study status` tells",
                    folder.string()));
  }
  const SlurmQueue queue = ask_squeue(folder, members(study).size());
  std::set<std::int64_t> jobs;
  for (const SlurmTask& task : queue.tasks) jobs.insert(task.job);
  if (!queue.is_known) throw UserError(queue.problem);
  std::vector<std::string> words{"scancel"};
  for (const std::int64_t job : jobs) words.push_back(fmt::to_string(job));
  if (jobs.empty()) return {};
  const CommandEnd end = run_command(words);
  if (end.code != 0) throw UserError(fmt::format("scancel: {}", last_line(end)));
  return {jobs.begin(), jobs.end()};
}

}  // namespace lowtide
