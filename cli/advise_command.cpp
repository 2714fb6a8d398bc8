#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/recipe_arguments.h"
#include "cli/study_arguments.h"
#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/cost/bit_operations.h"
#include "lowtide/study/advice.h"
#include "lowtide/study/command.h"
#include "lowtide/study/folder.h"

namespace lowtide {
namespace {

constexpr const char* kHelp =
    "Choose a schedule for a recipe, by a budget or a goal, with reasons.\n"
    "\n"
    "--budget 0.6: at most so much of the cost of static training at the recipe's highest bits (--of fp32: "
    "of fp32).\n"
    "--goal cheapest, balanced or best: what matters.\n"
    "--from DIR argues from the measurements of studies: a suite or budgets, and critical periods.";

constexpr const char *kOf = "static|fp32", *kGoals = "cheapest|balanced|best";

struct Options {
  Recipe recipe;
  std::string recipe_file, goal, of = "static";
  double budget = 0;
  bool has_budget = false;
  std::vector<std::string> studies;
  bool json = false;
};

std::optional<int> read_arguments(Options& options, int argc, char** argv) {
  CLI::App app(kHelp, "advise");
  const CLI::Option* budget =
      app.add_option("--budget", options.budget, "largest cost, relative to --of")->configurable(false);
  app.add_option("--of", options.of, "what the budget is a part of")
      ->capture_default_str()
      ->type_name(kOf)
      ->configurable(false);
  app.add_option("--goal", options.goal, "what to look for; without a budget")
      ->type_name(kGoals)
      ->configurable(false);
  app.add_option("--from", options.studies, "folders of studies")->type_name("FOLDER")->configurable(false);
  app.add_flag("--json", options.json, "print JSON")->configurable(false);
  add_recipe_options(app, options.recipe);
  if (const auto code = parse_recipe(app, argc, argv)) return code;
  options.recipe_file = given_recipe(app);
  options.has_budget = budget->count() > 0;
  if (options.has_budget != options.goal.empty())
    throw UserError("advise: expected --budget, such as 0.6, or --goal cheapest, balanced or best");
  expect_choice("of", options.of, kOf);
  if (options.has_budget && !(options.budget > 0))
    throw UserError(fmt::format("budget is {}; expected a number above 0", options.budget));
  return std::nullopt;
}

Goal goal_of(const std::string& name) {
  if (name == "cheapest") return Goal::kCheapest;
  if (name == "balanced" || name.empty()) return Goal::kBalanced;
  if (name == "best") return Goal::kBest;
  expect_choice("goal", name, kGoals);
  invariant_failed("a goal that is known", __FILE__, __LINE__, name);
}

AdviceRequest request_of(const Options& options) {
  AdviceRequest request;
  request.recipe = options.recipe;
  std::string assumed;
  request.steps = steps_of(options.recipe, &assumed);
  if (!assumed.empty()) fmt::print(stderr, "note: {}\n", assumed);
  request.goal = goal_of(options.goal);
  if (options.has_budget) {
    PrecisionOptions highest = options.recipe.precision;
    highest.schedule = "CR";
    request.budget =
        options.budget * (options.of == "fp32" ? 1.0 : relative_cost(schedule_of(highest).highest()));
  }
  for (const std::string& folder : options.studies) {
    const Study study = read_study(folder);  // before a folder that is none is searched
    const RunScan scan = scan_runs(folder);
    request.studies.push_back(analyse(study, scan, judge_to_choose_by(scan)));
  }
  return request;
}

std::string command_line(const Options& options, const Advice& advice) {
  std::string line = "lowtide train";
  if (!options.recipe_file.empty()) line += " --recipe " + shell_word(options.recipe_file);
  Recipe from_file;
  CLI::App app("", "advise");
  add_recipe_options(app, from_file);
  std::string name = "advise", flag = "--recipe", file = options.recipe_file;
  std::vector<char*> arguments{name.data(), flag.data(), file.data()};
  if (!file.empty()) parse_recipe(app, static_cast<int>(arguments.size()), arguments.data());
  // What was given as a flag must be given again.
  Recipe asked = options.recipe;
  asked.training = advice.training;
  asked.precision.eval_bits = advice.eval_bits;
  const Json was = to_json(from_file), is = to_json(asked);
  for (const auto& [key, value] : is.items()) {
    if (was.at(key) == value || key == "schedule") continue;
    if (value.is_boolean()) {
      line += value.get<bool>() ? " --" + key : " --no-" + key;
      continue;
    }
    line += " --" + key;
    for (const Json& element : value.is_array() ? value : Json::array({value}))
      line += " " + shell_word(element.is_string() ? element.get<std::string>() : element.dump());
  }
  return line + " --schedule " + shell_word(to_string(advice.schedule));
}

}  // namespace

int advise_command(int argc, char** argv) {
  Options options;
  if (const auto code = read_arguments(options, argc, argv)) return *code;
  if (options.recipe.data.dir.empty()) options.recipe.data.dir = "data";  // need not be there
  const AdviceRequest request = request_of(options);
  check(request.recipe);
  const Advice advice = advise(request);
  const std::string command = command_line(options, advice);
  if (options.json) {
    fmt::print("{}\n", Json{{"schedule", to_string(advice.schedule)},
                            {"relative_cost", advice.relative_cost},
                            {"of_static", advice.of_static},
                            {"reasons", advice.reasons},
                            {"command", command}}
                           .dump(2));
    return 0;
  }
  fmt::print("{}\n\n", to_string(advice.schedule));
  for (const std::string& reason : advice.reasons) fmt::print("- {}\n", reason);
  fmt::print("\n{}\n", command);
  return 0;
}

}  // namespace lowtide
