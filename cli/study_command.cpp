#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <span>
#include <string_view>

#include "cli/commands.h"
#include "cli/cost_arguments.h"
#include "cli/parse.h"
#include "cli/recipe_arguments.h"
#include "cli/study_arguments.h"
#include "cli/submit_arguments.h"
#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/io/standard_output.h"
#include "lowtide/recipe/recipe_file.h"
#include "lowtide/recipe/table_file.h"
#include "lowtide/study/analysis.h"
#include "lowtide/study/folder.h"
#include "lowtide/study/slurm.h"
#include "lowtide/study/status.h"

namespace lowtide {
namespace {

constexpr const char* kJudges = "test|valid";

constexpr const char* kUsage =
    "Many runs of one recipe, and what they tell together.\n"
    "\n"
    "usage: lowtide study suite --recipe FILE --out DIR       every schedule, with several seeds\n"
    "       lowtide study budget --recipe FILE --out DIR      schedules and controls at equal cost\n"
    "       lowtide study critical --recipe FILE --out DIR    low precision early, or in a window\n"
    "       lowtide study landscape --checkpoint RUN ...      the loss around trained weights\n"
    "       lowtide study member DIR INDEX                    one run of a study, for a scheduler\n"
    "       lowtide study status DIR                          where a study stands\n"
    "       lowtide study cancel DIR                          end the jobs of a study that was submitted\n"
    "       lowtide study analyze DIR                         what came out\n"
    "\n"
    "Each has --help. A study that was stopped goes on when the same command is given again; with more "
    "--seeds\n"
    "it grows.\n";

constexpr const char* kSuiteHelp =
    "Train a recipe on every schedule, with several seeds: run folders under --out.\n"
    "\n"
    "Every option of `lowtide train` can be given. Stop it with Ctrl-C: the runs save, and the same command "
    "goes on.\n"
    "--study takes a study's file instead of a recipe, such as the study.toml in a study's folder.\n"
    "\n"
    "--command 'python3 train.py --schedule {schedule} --seed {seed} --out {out}' --steps 2000 runs a script "
    "of "
    "one's own\n"
    "in the place of `lowtide train`.";

constexpr const char* kBudgetHelp =
    "Compare schedules at equal cost: at each budget, a share of the bit operations of static training at "
    "the "
    "highest\n"
    "bits, the ten scaled to it, and what else it buys.\n"
    "\n"
    "matched: bits that follow the learning rate. constant: the same bits throughout, two neighbouring "
    "numbers "
    "dithered.\n"
    "price, waterfill: closed loops, of all bits or of each layer's; each with the bits that it had, "
    "shuffled "
    "in time\n"
    "and replayed with another seed.\n"
    "shorter: the highest bits for fewer steps. phases: low bits first, the highest last, for every number "
    "of "
    "low bits\n"
    "that meets the budget. Static at full cost is always added; all are compared with constant.\n"
    "--study takes a study's file instead of a recipe, such as the study.toml in a study's folder.";

constexpr const char* kCriticalHelp =
    "Find critical periods: train with low precision at first, or in a window, and see what is lost for "
    "good.\n"
    "\n"
    "--deficits 0,500,1000: so many steps at the lowest bits, then the whole normal training with its "
    "learning rate.\n"
    "--window 500 --starts 0,500,1000: normal training, with the lowest bits in a window of 500 steps.\n"
    "--study takes a study's file instead of a recipe, such as the study.toml in a study's folder.";

const char* help_of(const std::string& kind) {
  if (kind == Study::kSuite) return kSuiteHelp;
  return kind == Study::kBudget ? kBudgetHelp : kCriticalHelp;
}

struct RunArguments {
  Study study;
  std::string out;
  int jobs = 1;
  SubmitArguments submit;
  bool names_seeds = false;  // as a flag, or in the file
};

std::optional<int> read_arguments(RunArguments& arguments, const std::string& kind, int argc, char** argv) {
  arguments.study.kind = kind;
  CLI::App app(help_of(kind), "study " + kind);
  add_recipe_file(app, "--recipe,--study",
                  "recipe file or its name, or a study's file (TOML); flags win over it");
  app.add_option("--out", arguments.out, "folder of the study")
      ->required()
      ->type_name("FOLDER")
      ->configurable(false);
  app.add_option("--jobs", arguments.jobs,
                 "runs at once; --threads, and the memory of a GPU, are shared among them")
      ->capture_default_str()
      ->configurable(false);
  add_submit_options(app, arguments.submit);
  define_study(app, arguments.study);
  if (const auto code = parse_recipe(app, argc, argv)) return code;
  check_submit_options(app, arguments.submit);
  for (std::string& schedule : arguments.study.schedules) schedule = with_tables_read(schedule);
  arguments.names_seeds = app.count("--seeds") > 0;
  for (const std::string_view word : std::span(argv, static_cast<std::size_t>(argc))) {
    // A recipe's own is passed over, since every recipe has one; this one somebody meant.
    if (word == "--schedule" || word.starts_with("--schedule="))
      throw UserError(fmt::format("study {} makes the schedules itself; leave --schedule out{}", kind,
                                  kind == Study::kCritical ? "" : ", or say --schedules"));
  }
  expect_kind(arguments.study, kind);
  if (arguments.jobs > 1 && !arguments.submit.to.empty())
    throw UserError("--jobs is for runs on this machine; with --submit slurm say --array-limit");
  if (arguments.jobs < 1) throw UserError(fmt::format("jobs is {}; expected 1 or more", arguments.jobs));
  return std::nullopt;
}

int run_study(const char* kind, int argc, char** argv) {
  RunArguments arguments;
  if (const auto code = read_arguments(arguments, kind, argc, argv)) return *code;
  Study& study = arguments.study;
  if (study.command.empty()) study.recipe.training.steps = steps_of(study.recipe);
  if (!arguments.names_seeds && file_exists(study_file(arguments.out)))
    study.seeds = read_study(arguments.out).seeds;
  complete(study);
  fit_to_network(study);
  for (const ImpossibleSetting& one : study.impossible)
    print_line(fmt::format("left out: {}: {}", one.setting, one.reason));
  const StudyFolder folder(arguments.out, study, print_line);
  if (folder.seeds_before() > 0 && folder.seeds_before() < study.seeds)
    fmt::print("the study grows from {} to {} seeds\n", folder.seeds_before(), study.seeds);
  if (!arguments.submit.to.empty()) return submit(arguments.submit, study, arguments.out), 0;
  const std::vector<Member> all = members(study);
  const RunnerEnd end =
      run_members(all, arguments.out,
                  {.jobs = arguments.jobs, .threads = study.recipe.running.threads, .say = print_line});
  if (end.signal != 0) {
    fmt::print("stopped; continue with: lowtide study {} --study {} --out {}\n", kind,
               study_file(arguments.out).string(), arguments.out);
    return 128 + end.signal;
  }
  if (!end.failed.empty()) {
    throw UserError(fmt::format("{} of {} runs failed, the first {}: {}", end.failed.size(), all.size(),
                                end.failed[0].name, end.failed[0].reason));
  }
  expect_none_elsewhere(end, all.size());
  fmt::print("done; what came out: lowtide study analyze {}\n", arguments.out);
  return 0;
}

int suite_command(int argc, char** argv) { return run_study(Study::kSuite, argc, argv); }
int budget_command(int argc, char** argv) { return run_study(Study::kBudget, argc, argv); }
int critical_command(int argc, char** argv) { return run_study(Study::kCritical, argc, argv); }

int member_command(int argc, char** argv) {
  std::string folder;
  std::int64_t index = 0;
  CLI::App app(
      "One run of a study, for a scheduler that starts each by itself: an array of jobs, GNU parallel, ssh.\n"
      "\n"
      "A run that was interrupted goes on, one that is done is left alone, one that another process trains "
      "is refused.\n"
      "A signal that asks to stop makes it save and end with 128 + its number: the same command goes on "
      "later.\n"
      "\n"
      "Exit codes: 0: done. 128 + n: stopped by signal n, after it saved. 75: another process trains it.\n"
      "2: it failed.",
      "study member");
  app.add_option("STUDY", folder, "folder of the study")->required()->type_name("FOLDER");
  app.add_option("INDEX", index, "of the run, from 0 on: `study status` lists them")->required();
  if (const auto code = parse(app, argc, argv)) return *code;
  const Study study = read_study(folder);
  const std::vector<Member> all = members(study);
  if (index < 0 || index >= static_cast<std::int64_t>(all.size())) {
    throw UserError(
        fmt::format("{}: there is no member {}; expected 0 to {}, as `lowtide study status` lists them",
                    folder, index, all.size() - 1));
  }
  const auto only = static_cast<std::size_t>(index);
  if (file_exists(MemberPaths(folder, all[only]).run.result()))
    return print_line(fmt::format("{} is done already", all[only].name)), 0;
  const RunnerEnd end =
      run_members(all, folder, {.threads = study.recipe.running.threads, .say = print_line, .only = only});
  if (!end.failed.empty()) throw UserError(fmt::format("{}: {}", all[only].name, end.failed[0].reason));
  if (end.signal != 0) return 128 + end.signal;
  if (!end.elsewhere.empty()) {
    throw LeaseTaken(fmt::format("{} is trained elsewhere already, by {}; stop that one first",
                                 all[only].name, end.elsewhere[0].writer));
  }
  return 0;
}

int status_command(int argc, char** argv) {
  std::string folder;
  bool json = false;
  CLI::App app(
      "Where a study stands: each run's state and progress, and the time left.\n"
      "\n"
      "Told from the run folders, whichever machine trains; of a study that was submitted to SLURM also from "
      "its queue.",
      "study status");
  app.add_option("DIR", folder, "folder of the study")->required();
  app.add_flag("--json", json, "print JSON");
  if (const auto code = parse(app, argc, argv)) return *code;
  std::vector<MemberStatus> status = read_status(members(read_study(folder)), folder);
  const SlurmQueue queue = ask_squeue(folder, status.size());
  if (!queue.problem.empty()) fmt::print(stderr, "note: {}\n", queue.problem);
  add_queue(status, queue);
  fmt::print("{}", json ? to_json(status).dump(2) + "\n" : status_text(status));
  return 0;
}

int cancel_command(int argc, char** argv) {
  std::string folder;
  CLI::App app(
      "End the jobs of a study that was submitted to SLURM: what runs saves, and is not queued again.\n"
      "\n"
      "The command that submitted it goes on with it later.",
      "study cancel");
  app.add_option("DIR", folder, "folder of the study")->required();
  if (const auto code = parse(app, argc, argv)) return *code;
  const std::vector<std::int64_t> jobs = cancel_in_slurm(read_study(folder), folder);
  fmt::print("{}\n", jobs.empty() ? "no job of this study is in the queue"
                                  : fmt::format("cancelled job {}; its runs save what they have",
                                                fmt::join(jobs, ", ")));
  return 0;
}

int analyze_command(int argc, char** argv) {
  std::vector<std::string> folders;
  std::string csv, json;
  CLI::App app(
      "What a study shows, as Markdown: means and deviations over seeds, correlation of cost and metric, the "
      "Pareto\n"
      "front, what beats static at less cost; what beats constant bits at the same cost; or critical "
      "periods.\n"
      "Of several budget studies, of several tasks, p are adjusted over all of them.",
      "study analyze");
  app.add_option("DIR", folders, "folder of the study; of several, budget studies all")->required();
  app.add_option("--csv", csv, "write the table to this file; -: standard output, and nothing else")
      ->check(no_file_of_a_run())
      ->type_name("FILE");
  app.add_option("--json", json, "write everything to this file; -: likewise")
      ->check(no_file_of_a_run())
      ->type_name("FILE");
  bool best = false;
  app.add_flag("--best", best, "judge runs by the weights that --keep-best kept, not by the last ones");
  std::string split = "test";
  app.add_option("--split", split,
                 "judge by the test set, or by the held-out items, as a choice has to be made")
      ->capture_default_str()
      ->type_name(kJudges);
  std::string way;
  std::optional<double> budget;
  CLI::Option* has_way =
      app.add_option("--way", way,
                     "of budget studies: a way that was chosen before they were run; its p are adjusted "
                     "over tasks alone")
          ->type_name("NAME");
  app.add_option("--budget", budget, "that it was chosen for; else all that the studies have")
      ->needs(has_way);
  CostMeasure measure;
  add_cost_options(app, measure);
  if (const auto code = parse(app, argc, argv)) return *code;
  expect_choice("split", split, kJudges);
  if (folders.size() > 1 && !csv.empty())
    throw UserError("--csv is the table of one study; of several give --json, or analyse each by itself");
  const Judge judge = split == "test" ? Judge::kTest : Judge::kHeldOut;
  const Weights weights = best ? Weights::kBest : Weights::kLast;
  std::vector<Analysis> analyses;
  for (const std::string& folder : folders) {
    const Study study = read_study(folder);  // before a folder that is none is searched
    analyses.push_back(analyse(study, scan_runs(folder), judge, measure, weights));
  }
  for (Analysis& analysis : analyses) {
    if (!way.empty()) freeze(analysis, way, budget);
  }
  if (analyses.size() > 1 || !way.empty()) adjust_together(analyses);
  Json all = Json::array();
  for (const Analysis& analysis : analyses) {
    if (!is_standard_output(csv) && !is_standard_output(json)) fmt::print("{}", to_markdown(analysis));
    all.push_back(to_json(analysis));
  }
  if (!csv.empty()) write_output(csv, to_csv(analyses[0]));
  if (!json.empty()) write_output(json, (all.size() == 1 ? all[0] : all).dump(2) + "\n");
  return 0;
}

}  // namespace

std::span<const Command> study_commands() {
  static const std::array kCommands{
      Command{"suite", suite_command, "every schedule, with several seeds", {}},
      Command{"budget", budget_command, "schedules and controls at equal cost", {}},
      Command{"critical", critical_command, "low precision early, or in a window", {}},
      Command{"landscape", landscape_command, "the loss around trained weights", {}},
      Command{"member", member_command, "one run of a study, for a scheduler", {}},
      Command{"status", status_command, "where a study stands", {}},
      Command{"cancel", cancel_command, "end the jobs of a study that was submitted", {}},
      Command{"analyze", analyze_command, "what came out of a study", {}},
  };
  return kCommands;
}

int study_command(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "--help";
  if (name != "--help" && name != "-h")
    return find_command(study_commands(), name, "study").run(argc - 1, argv + 1);
  fmt::print("{}", kUsage);
  return argc > 1 ? 0 : 2;
}

}  // namespace lowtide
