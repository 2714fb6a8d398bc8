#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "cli/commands.h"
#include "cli/recipe_arguments.h"
#include "cli/runtime.h"
#include "lowtide/base/error.h"
#include "lowtide/train/run_folder.h"
#include "lowtide/train/trainer.h"

namespace lowtide {
namespace {

// runs/RECIPE-SCHEDULE-seedN: the same command finds its folder again.
std::filesystem::path default_folder(const std::string& recipe_file, const Recipe& recipe) {
  const std::string stem =
      recipe_file.empty() ? recipe.model : std::filesystem::path(recipe_file).stem().string();
  std::string schedule = to_string(schedule_of(recipe));
  schedule = schedule.substr(0, schedule.find(' '));
  return std::filesystem::path("runs") / fmt::format("{}-{}-seed{}", stem, schedule, recipe.seed);
}

// A resumed run goes on with its own recipe. What the command line says must not contradict it, except for
// how it runs.
Recipe recipe_to_resume(const RunPaths& paths, const Recipe& asked, bool recipe_given) {
  const Recipe stored =
      recipe_from_json(read_run_file(paths.run()).value("recipe", Json()), paths.run().string());
  if (!recipe_given) return stored;
  const std::vector<std::string> changed = differences(stored, asked);
  if (changed.empty()) return asked;
  throw UserError(
      fmt::format("{} was started with another {}; resume without it, or start anew with another --out",
                  paths.folder.string(), fmt::join(changed, ", ")));
}

void print_result(const Json& result, const std::filesystem::path& folder) {
  const auto percent = [](const Json& value) {
    return value.is_null() ? std::string("-") : fmt::format("{:.2f} %", 100 * value.get<double>());
  };
  fmt::print("\n{} {} test, {} held out, at {} bits\n", result.at("metric").get<std::string>(),
             percent(result.at("test")), percent(result.at("valid")), result.at("eval_bits").get<int>());
  fmt::print("cost {:.4f} of fp32; {:.1f} GBitOps (paper), {:.1f} (actual)\n",
             result.at("relative_cost").get<double>(), result.at("gbitops").at("paper").get<double>(),
             result.at("gbitops").at("actual").get<double>());
  fmt::print("time {}; in {}\n", duration_text(result.at("seconds").get<double>()), folder.string());
}

}  // namespace

int train_command(int argc, char** argv) {
  Recipe recipe;
  std::string out, resume_folder;
  bool print_config = false;
  CLI::App app("Train a network on a precision schedule; writes a run folder.", "train");
  app.add_option("--out", out, "run folder; default: runs/RECIPE-SCHEDULE-seedN")->configurable(false);
  const CLI::Option* resume =
      app.add_option("--resume", resume_folder, "continue the run in this folder, or in --out")
          ->expected(0, 1)
          ->type_name("[FOLDER]")
          ->configurable(false);
  app.add_flag("--print-config", print_config, "print the merged recipe and stop")->configurable(false);
  add_recipe_options(app, recipe);
  if (const auto code = parse_recipe(app, argc, argv)) return *code;
  const std::string recipe_file = app.get_config_ptr()->as<std::string>();
  if (print_config) return fmt::print("{}", to_toml(recipe)), 0;

  if (!resume_folder.empty()) out = resume_folder;
  const bool resuming = resume->count() > 0;
  const RunPaths paths{out.empty() ? default_folder(recipe_file, recipe) : std::filesystem::path(out)};
  if (resuming && std::filesystem::exists(paths.run())) {
    recipe = recipe_to_resume(paths, recipe, !recipe_file.empty());
  } else if (resuming && recipe_file.empty() && recipe.data_dir.empty()) {
    throw UserError(fmt::format("{} holds no run to resume", paths.folder.string()));
  }
  check(recipe);
  if (resuming && std::filesystem::exists(paths.result())) {
    fmt::print("{} is finished already\n", paths.folder.string());
    print_result(read_run_file(paths.result()), paths.folder);
    return 0;
  }
  prepare_torch(recipe.threads);
  const TrainingEnd end = Trainer(recipe, program_version()).run(paths.folder, resuming);
  if (end.signal != 0) return 128 + end.signal;  // as shells report it
  print_result(end.result, paths.folder);
  return 0;
}

}  // namespace lowtide
