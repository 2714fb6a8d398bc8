#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/recipe/recipe.h"

namespace lowtide {

// Adds the option, or options, that name a recipe file, or a recipe by its name.
void add_recipe_file(CLI::App& app, const std::string& flags, const std::string& help);

// Adds --recipe and every option of a recipe.
void add_recipe_options(CLI::App& app, Recipe& recipe);

// Reads arguments like parse(), after translating the original program's flags.
std::optional<int> parse_recipe(CLI::App& app, int argc, char** argv);

// The file that --recipe named, once arguments were read; empty where it was not given.
std::string given_recipe(CLI::App& app);

// A recipe from its file, changed by arguments such as --data-dir. UserError where it is none.
Recipe read_recipe(const std::string& file, const std::vector<std::string>& changes);

// The recipes that are known by name: those that were installed with the program, or lie where it was built.
std::vector<std::string> recipe_names();

}  // namespace lowtide
