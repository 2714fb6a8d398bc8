#include <fmt/format.h>

#include <array>
#include <span>
#include <string_view>

#include "cli/commands.h"
#include "cli/recipe_arguments.h"
#include "lowtide/base/error.h"
#include "lowtide/tasks/data_check.h"

namespace lowtide {
namespace {

constexpr const char* kUsage =
    "The data of a recipe.\n"
    "\n"
    "usage: lowtide data check --recipe FILE      read all of it: counts, classes, sizes, what is damaged\n"
    "\n"
    "It has --help.\n";

int check_command(int argc, char** argv) {
  Recipe recipe;
  bool json = false;
  CLI::App app(
      "Read the whole data set of a recipe, every image too: counts, classes, sizes, and what is damaged, "
      "with the reason.\nExit code 2 where something is, unless --skip-damaged says that it may be.",
      "data check");
  app.add_flag("--json", json, "print JSON")->configurable(false);
  add_recipe_options(app, recipe);
  if (const auto code = parse_recipe(app, argc, argv)) return *code;
  if (recipe.training.steps == 0 && recipe.training.epochs == 0)
    recipe.training.steps = 1;  // nothing is trained
  check(recipe);
  const DataCheck found = check_data(recipe);
  if (json) {
    Json whole = to_json(found);
    whole["data"] = recipe.data.format;
    whole["data_dir"] = recipe.data.dir;
    fmt::print("{}\n", whole.dump(2));
  } else {
    fmt::print("{}", to_text(found));
  }
  std::fflush(stdout);
  if (found.failed())
    throw UserError(fmt::format("{}: a part of the data cannot be read, see above", recipe.data.dir));
  if (found.damaged() > 0 && !recipe.data.skip_damaged) {
    throw UserError(fmt::format("{}: {} damaged; mend or remove them, or train with --skip-damaged",
                                recipe.data.dir, found.damaged()));
  }
  return 0;
}

}  // namespace

std::span<const Command> data_commands() {
  static const std::array kCommands{
      Command{"check", check_command, "counts, classes, sizes, what is damaged", {}}};
  return kCommands;
}

int data_command(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "--help";
  if (name != "--help" && name != "-h")
    return find_command(data_commands(), name, "data").run(argc - 1, argv + 1);
  fmt::print("{}", kUsage);
  return argc > 1 ? 0 : 2;
}

}  // namespace lowtide
