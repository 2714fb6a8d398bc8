#include "cli/recipe_arguments.h"

#include <string>
#include <vector>

#include "cli/original_flags.h"
#include "cli/parse.h"
#include "lowtide/base/error.h"
#include "lowtide/train/recipe_file.h"

namespace lowtide {

void add_recipe_options(CLI::App& app, Recipe& recipe) {
  app.set_config("--recipe", "", "recipe file (TOML); flags win over it")->check(recipe_path_problem);
  app.allow_config_extras(CLI::config_extras_mode::error);
  define_recipe(app, recipe);
}

std::optional<int> parse_recipe(CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> arguments = translate_original_flags({argv + 1, argv + argc});
  std::vector<char*> translated{argv[0]};
  for (const std::string& argument : arguments) translated.push_back(const_cast<char*>(argument.c_str()));
  return parse(app, static_cast<int>(translated.size()), translated.data());
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
