#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/as_rank.h"
#include "cli/commands.h"
#include "cli/recipe_arguments.h"
#include "cli/runtime.h"
#include "lowtide/base/cpus.h"
#include "lowtide/base/error.h"
#include "lowtide/io/standard_output.h"
#include "lowtide/ranks/c10d_ranks.h"
#include "lowtide/report/comparison.h"
#include "lowtide/train/local_ranks.h"
#include "lowtide/train/run_folder.h"
#include "lowtide/train/run_result.h"
#include "lowtide/train/trainer.h"

namespace lowtide {
namespace {

// runs/RECIPE-SCHEDULE-seedN: the same command finds its folder again.
std::filesystem::path default_folder(const std::string& recipe_file, const Recipe& recipe) {
  const std::string stem =
      recipe_file.empty() ? recipe.model.name : std::filesystem::path(recipe_file).stem().string();
  std::string schedule = to_string(schedule_of(recipe.precision));
  schedule = schedule.substr(0, schedule.find(' '));
  return std::filesystem::path("runs") / fmt::format("{}-{}-seed{}", stem, schedule, recipe.training.seed);
}

struct TrainArguments {
  Recipe recipe;
  std::string recipe_file, out;
  bool resume = false;
  bool print_config = false;
  bool asks_for_ranks = false;

  RunPaths paths() const {
    return {out.empty() ? default_folder(recipe_file, recipe) : std::filesystem::path(out)};
  }
};

// What is not given stays as it is in `arguments`. Returns the exit code if the command ends here.
std::optional<int> read_arguments(TrainArguments& arguments, int argc, char** argv) {
  std::string resume_folder;
  CLI::App app("Train a network on a precision schedule; writes a run folder.", "train");
  const CLI::Option* out =
      app.add_option("--out", arguments.out, "run folder; default: runs/RECIPE-SCHEDULE-seedN")
          ->type_name("FOLDER")
          ->configurable(false);
  const CLI::Option* resume =
      app.add_option("--resume", resume_folder, "continue the run in this folder, or in --out")
          ->expected(0, 1)
          ->type_name("[FOLDER]")
          ->configurable(false);
  app.add_flag("--print-config", arguments.print_config, "print the merged recipe and stop")
      ->configurable(false);
  add_recipe_options(app, arguments.recipe);
  if (const auto code = parse_recipe(app, argc, argv)) return code;
  arguments.recipe_file = given_recipe(app);
  arguments.resume = resume->count() > 0;
  arguments.asks_for_ranks = app.get_option("--ranks")->count() > 0;
  if (out->count() > 0 && arguments.out.empty()) throw UserError("--out is empty; expected a folder");
  if (resume_folder.empty()) return std::nullopt;
  if (!arguments.out.empty() && arguments.out != resume_folder)
    throw UserError(
        fmt::format("--resume {} and --out {} name two folders; expected one", resume_folder, arguments.out));
  arguments.out = resume_folder;
  return std::nullopt;
}

bool is_length(const std::string& key) { return key == "steps" || key == "epochs"; }

// A resumed run goes on with its own recipe. What the command line says must not contradict it, except for
// how it runs, and how long: whether that can be is seen when its checkpoint is read.
void check_same(const RunPaths& paths, const Recipe& stored, const Recipe& asked) {
  const Json was = determining_keys(stored), is = determining_keys(asked);
  for (const std::string& key : differences(stored, asked)) {
    if (is_length(key)) continue;
    throw UserError(
        fmt::format("{}: {} is {} in the run, but {} was asked for; resume without it, or start anew with "
                    "another --out",
                    paths.folder.string(), key, was.at(key).dump(), is.at(key).dump()));
  }
}

void print_result(const RunResult& result, const std::filesystem::path& folder) {
  const Metric& metric = find_metric(result.metric);
  const auto text = [&](const std::optional<double>& value) {
    return value ? metric_text(metric, *value) : std::string("-");
  };
  const auto print_metric = [&](const std::string& which, const auto& of) {
    fmt::print("{}{} {} test, {} held out, at {}\n", which, metric.name, text(of.test.metric), text(of.valid),
               bits_name(result.eval_bits));
  };
  fmt::print("\n");
  print_metric(result.best ? fmt::format("last, step {}: ", result.steps) : "", result);
  if (result.best) print_metric(fmt::format("best, step {}: ", result.best->step), *result.best);
  const RunCost cost = cost_of(result);
  for (const CostCount count : {CostCount::kActual, CostCount::kPaper}) {
    fmt::print("cost {:.4f} of fp32, {:.1f} GBitOps: {}, {}\n", cost.relative(count), cost.gbitops(count),
               to_string(count), count_meaning(count));
  }
  fmt::print("time {}; in {}\n", duration_text(result.seconds), folder.string());
}

RunResult read_stored_result(const RunPaths& paths) {
  try {
    return read_run_result(paths.result());
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}; remove the file, and --resume evaluates the run anew", error.what()));
  }
}

int tell_finished(const RunPaths& paths) {
  fmt::print("{} is finished already\n", paths.folder.string());
  print_result(read_stored_result(paths), paths.folder);
  return 0;
}

constexpr const char* kSharedFiles = "ranks need a file system that all of them see";

// What is trained, and whether that was done before.
struct Job {
  TrainArguments arguments;
  RunPaths paths;
  bool is_finished = false;
};

// A run's own recipe, where one is resumed, under what was given. `launched`: by whoever started this process.
Job prepare(TrainArguments arguments, int argc, char** argv, const std::optional<RankEnvironment>& launched) {
  const RunPaths paths = arguments.paths();
  // A start that failed binds nobody: what is given now counts, and its recipe only where none is given.
  const bool has_recipe = !arguments.recipe_file.empty() || !arguments.recipe.data.dir.empty();
  const bool begun = arguments.resume && has_begun(paths);
  bool same_length = true;
  if (arguments.resume && file_exists(paths.run()) && (begun || !has_recipe)) {
    // Read once more, now on top of the run's own recipe: so every flag and key that was given is looked at.
    const Recipe stored = read_run_recipe(paths);
    arguments.recipe = stored;
    read_arguments(arguments, argc, argv);
    if (arguments.recipe.precision.engine == "auto")
      arguments.recipe.precision.engine = stored.precision.engine;  // chosen when the run began
    if (begun) check_same(paths, stored, arguments.recipe);
    same_length = stored.training.same_length(arguments.recipe.training);
  } else if (arguments.resume && !has_recipe) {
    // Of another rank than the first it is told where that one found a run.
    const bool is_other = launched && launched->rank > 0;
    throw UserError(fmt::format("{} holds no run to resume{}", paths.folder.string(),
                                is_other ? "; " + std::string(kSharedFiles) : ""));
  }
  if (launched) {
    std::int64_t& ranks = arguments.recipe.running.ranks;
    if (arguments.asks_for_ranks && ranks > 1 && ranks != launched->size)
      throw UserError(fmt::format("ranks is {}, but {} were started; leave it out, or start as many", ranks,
                                  launched->size));
    ranks = launched->size;
  }
  const bool is_finished = arguments.resume && same_length && file_exists(paths.result());
  return {std::move(arguments), paths, is_finished};
}

int train(const Job& job, const std::shared_ptr<Ranks>& ranks) {
  // A folder that is there is taken before the data is read, which may take minutes.
  std::optional<Lease> lease;
  if (ranks->is_first() && file_exists(job.paths.folder))
    lease = take_run(job.paths, [](const std::string& line) { print_or_drop(line + "\n"); });
  const TrainingEnd end = Trainer(job.arguments.recipe, program_version(), ranks)
                              .run(job.paths.folder, job.arguments.resume, std::move(lease));
  if (end.signal != 0) return 128 + end.signal;  // as shells report it
  if (ranks->is_first()) print_result(end.result, job.paths.folder);
  return 0;
}

// UserError where the ranks do not see the same.
bool is_finished_on_all(const Job& job, Ranks& ranks) {
  const auto finished = ranks.gather(std::vector<std::int64_t>{job.is_finished ? 1 : 0});
  const auto other =
      std::find_if(finished.begin(), finished.end(), [&](auto& of) { return of != finished[0]; });
  if (other == finished.end()) return job.is_finished;
  const char* seen[]{"a run that is not finished", "a finished run"};
  throw UserError(fmt::format("in {} rank 0 sees {}, rank {} {}; {}", job.paths.folder.string(),
                              seen[finished[0][0]], other - finished.begin(), seen[(*other)[0]],
                              kSharedFiles));
}

int train_as_rank(const Job& job, const RankEnvironment& mine, const std::string& problem) {
  const auto work = [&](const std::shared_ptr<C10dRanks>& ranks) {
    if (is_finished_on_all(job, *ranks)) return ranks->is_first() ? tell_finished(job.paths) : 0;
    return train(job, ranks);
  };
  return work_as_rank(mine, job.arguments.recipe.running.device, problem, work);
}

int train_alone(const Job& job) {
  const RunningOptions& running = job.arguments.recipe.running;
  if (running.ranks == 1) {
    prepare_torch(running.threads);
    return train(job, alone());
  }
  int code = 0;
  const auto mine = start_local_ranks(static_cast<int>(running.ranks), code);
  if (!mine) return code;
  prepare_torch(running.threads > 0 ? running.threads : std::max(1, usable_cpus() / mine->size));
  return train_as_rank(job, *mine, "");
}

// What is wrong with the job of one rank is told to all of them, or they would wait for it.
int train_launched(const TrainArguments& arguments, int argc, char** argv, const RankEnvironment& mine) {
  Job job;
  std::string problem;
  try {
    job = prepare(arguments, argc, argv, mine);
    check(job.arguments.recipe);
    prepare_torch(job.arguments.recipe.running.threads);
  } catch (const UserError& error) {
    problem = error.what();
  }
  return train_as_rank(job, mine, problem);
}

}  // namespace

int train_command(int argc, char** argv) {
  TrainArguments arguments;
  try {
    if (const auto code = read_arguments(arguments, argc, argv)) return *code;
  } catch (const UserError& error) {
    const std::optional<RankEnvironment> launched = rank_environment();
    if (!launched) throw;
    return train_as_rank({}, *launched, error.what());
  }
  const std::optional<RankEnvironment> launched = rank_environment();
  if (launched && !arguments.print_config) return train_launched(arguments, argc, argv, *launched);
  const Job job = prepare(std::move(arguments), argc, argv, std::nullopt);
  if (job.arguments.print_config) return fmt::print("{}", to_toml(job.arguments.recipe)), 0;
  check(job.arguments.recipe);
  return job.is_finished ? tell_finished(job.paths) : train_alone(job);
}

}  // namespace lowtide
