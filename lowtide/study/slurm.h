#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/study/study.h"

// Studies as arrays of jobs of SLURM, a task of the array for a member. docs/scale.md says how they go.

namespace lowtide {

// What is not given is the cluster's default.
struct SlurmOptions {
  std::string partition{}, time{};
  int gpus = 0;         // a run
  int array_limit = 0;  // runs at once
};

// The members with these indices, "0-3,7,9-11", and back: the part of it below `end`. What follows a % is passed over, a step
// (0-8:2) is understood. Nothing for what is not such a list.
std::string index_ranges(const std::vector<std::size_t>& indices);
std::optional<std::vector<std::size_t>> parse_index_ranges(std::string_view text, std::size_t end);

// A job script for sbatch that trains these members. One that is preempted or near its limit of time saves, and is queued again.
std::string slurm_script(const std::filesystem::path& program, const std::filesystem::path& folder,
                         const std::vector<std::size_t>& indices, int threads, const SlurmOptions& options);

// A member's place in SLURM's queue.
struct SlurmTask {
  std::int64_t job = 0;
  std::size_t index = 0;
  std::string state, reason, nodes;  // PENDING, RUNNING …; why it waits; where it runs

  std::string name() const;  // 4711_3
};

// The tasks of these jobs, of so many members, that have not ended, by what `squeue --json` prints. UserError for anything else.
std::vector<SlurmTask> parse_squeue(std::string_view text, const std::vector<std::int64_t>& jobs,
                                    std::size_t members);

// The jobs that a study was submitted as, noted in its folder.
std::vector<std::int64_t> slurm_jobs(const std::filesystem::path& folder);

struct SlurmQueue {
  bool is_known = false;  // else why not
  std::string problem{};  // empty where the study was never submitted
  std::vector<SlurmTask> tasks{};
};

// Asks `squeue --json` of a study's jobs.
SlurmQueue ask_squeue(const std::filesystem::path& folder, std::size_t members);

struct Submission {
  std::int64_t job = 0;
  std::size_t members = 0;
};

// Submits the members that are neither done, nor trained now, nor queued: writes the script into the study's folder, gives it to
// sbatch and notes the job. Nothing where there are none. UserError where sbatch refuses, or squeue does not tell what is queued.
std::optional<Submission> submit_to_slurm(const Study& study, const std::filesystem::path& folder,
                                          const SlurmOptions& options);

// Tells SLURM to end the study's jobs: runs save, and are not queued again. Returns the jobs. UserError where there are none.
std::vector<std::int64_t> cancel_in_slurm(const Study& study, const std::filesystem::path& folder);

}  // namespace lowtide
