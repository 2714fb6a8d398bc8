#include "cli/recipe_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/original_flags.h"
#include "cli/parse.h"
#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/recipe/recipe_file.h"
#include "lowtide/recipe/table_file.h"
#include "lowtide/schedule/text.h"

namespace lowtide {

namespace {

namespace fs = std::filesystem;

// Beside the installed program, or beside the folder it was built in; empty where neither is.
fs::path recipe_folder() {
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const char* folder : {"../share/lowtide/recipes", "../recipes"}) {
    const fs::path found = fs::canonical(program / folder, none);
    if (!none) return found;
  }
  return {};
}

// A file stays as it is; what is none, and looks like none, is a recipe's name. Returns what is wrong.
std::string find_recipe(std::string& given) {
  std::error_code none;
  if (given.empty()) return "the name is empty; expected a recipe file, or the name of a recipe";
  if (given.find('/') != std::string::npos || fs::path(given).has_extension()) return "";
  if (fs::exists(given, none)) return "";
  const std::vector<std::string> names = recipe_names();
  if (std::find(names.begin(), names.end(), given) == names.end()) {
    return fmt::format("{} is neither a file nor the name of a recipe{}", lowtide::quoted(given),
                       did_you_mean(given, {names.begin(), names.end()}));
  }
  given = (recipe_folder() / (given + ".toml")).string();
  return "";
}

std::optional<std::string> value_of(const std::vector<std::string>& arguments, const std::string& flag) {
  for (auto argument = arguments.begin(); argument != arguments.end(); ++argument) {
    if (argument->starts_with(flag + "=")) return argument->substr(flag.size() + 1);
    if (*argument == flag) return std::next(argument) == arguments.end() ? "" : *std::next(argument);
  }
  return std::nullopt;
}

// A recipe that has both goes by its steps. But a flag wins over the file: --epochs over the file's steps too.
void set_length(std::vector<std::string>& arguments) {
  if (!value_of(arguments, "--epochs")) return;
  const auto steps = value_of(arguments, "--steps");
  if (!steps) {
    arguments.emplace_back("--steps=0");
  } else if (*steps != "0") {
    throw UserError("--steps and --epochs are both given; expected one");
  }
}

}  // namespace

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(recipe_folder(), none)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void add_recipe_file(CLI::App& app, const std::string& flags, const std::string& help) {
  app.set_config(flags, "", help)
      ->type_name("RECIPE")
      ->transform(CLI::Validator(find_recipe, ""))
      ->check(recipe_path_problem);
  app.allow_config_extras(CLI::config_extras_mode::error);
}

void add_recipe_options(CLI::App& app, Recipe& recipe) {
  add_recipe_file(app, "--recipe",
                  "recipe file (TOML), or the name of one that came with the program; flags win over it");
  define_recipe(app, recipe);
  app.parse_complete_callback(
      [&recipe] { recipe.precision.schedule = with_tables_read(recipe.precision.schedule); });
}

std::optional<int> parse_recipe(CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments = translate_original_flags({argv + 1, argv + argc});
  set_length(arguments);
  std::vector<char*> translated{argv[0]};
  for (const std::string& argument : arguments) translated.push_back(const_cast<char*>(argument.c_str()));
  return parse(app, static_cast<int>(translated.size()), translated.data());
}

std::string given_recipe(CLI::App& app) {
  const CLI::Option* recipe = app.get_config_ptr();
  return recipe->count() > 0 ? recipe->as<std::string>() : "";  // as() of none crashes with newer CLI11
}

Recipe read_recipe(const std::string& file, const std::vector<std::string>& changes) {
  Recipe recipe;
  CLI::App app("", "bench");
  add_recipe_options(app, recipe);
  std::vector<std::string> arguments{"--recipe", file};
  arguments.insert(arguments.end(), changes.begin(), changes.end());
  std::vector<char*> raw{const_cast<char*>("recipe")};
  for (const std::string& argument : arguments) raw.push_back(const_cast<char*>(argument.c_str()));
  if (parse(app, static_cast<int>(raw.size()), raw.data())) throw UserError(file + " is not a recipe");
  check(recipe);
  return recipe;
}

}  // namespace lowtide
