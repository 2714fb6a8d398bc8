#include "cli/submit_arguments.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/study/command.h"

namespace lowtide {
namespace {

constexpr const char* kTargets = "slurm|none";

void submit_to_slurm(const SlurmOptions& options, const Study& study, const std::string& folder) {
  const std::string word = shell_word(folder);
  const std::optional<Submission> submission = submit_to_slurm(study, std::filesystem::path(folder), options);
  if (!submission)
    return fmt::print("every run is done, trained now or queued; where it stands: lowtide study status {}\n",
                      word);
  fmt::print(
      "submitted {} runs as job {}; where it stands: lowtide study status {}; to end it: lowtide study "
      "cancel {}\n",
      submission->members, submission->job, word, word);
}

}  // namespace

void add_submit_options(CLI::App& app, SubmitArguments& arguments) {
  const std::string before = app.option_defaults()->get_group();
  app.option_defaults()->group("Submitting");
  app.add_option("--submit", arguments.to,
                 "train nothing here. slurm: submit the runs as an array of jobs; none: leave them to "
                 "others, who call "
                 "`study member`")
      ->type_name(kTargets)
      ->configurable(false);
  app.add_option("--partition", arguments.slurm.partition, "SLURM's partition; default: the cluster's")
      ->configurable(false);
  app.add_option(
         "--time", arguments.slurm.time,
         "limit of a run's time, such as 4:00:00; one that does not end by then saves, and is queued again")
      ->configurable(false);
  app.add_option("--gpus", arguments.slurm.gpus, "GPUs of a run")
      ->check(CLI::Range(0, 1024))
      ->configurable(false);
  app.add_option("--array-limit", arguments.slurm.array_limit,
                 "runs at once; 0: as many as the cluster has room for")
      ->check(CLI::Range(0, 1'000'000))
      ->configurable(false);
  app.option_defaults()->group(before);
}

void check_submit_options(const CLI::App& app, const SubmitArguments& arguments) {
  if (!arguments.to.empty()) expect_choice("submit", arguments.to, kTargets);
  for (const char* option : {"--partition", "--time", "--gpus", "--array-limit"}) {
    if (app.count(option) > 0 && arguments.to != "slurm")
      throw UserError(fmt::format("{} is for jobs of SLURM; add --submit slurm, or leave it out", option));
  }
}

void submit(const SubmitArguments& arguments, const Study& study, const std::string& folder) {
  if (arguments.to == "slurm") return submit_to_slurm(arguments.slurm, study, folder);
  const std::size_t count = members(study).size();
  fmt::print("{} holds a study of {} runs; each is one of: lowtide study member {} INDEX, from 0 to {}\n",
             folder, count, shell_word(folder), count - 1);
}

}  // namespace lowtide
