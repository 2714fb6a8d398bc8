#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "lowtide/train/recipe.h"

namespace lowtide {

// Adds --recipe FILE and every option of a recipe.
void add_recipe_options(CLI::App& app, Recipe& recipe);

// Reads arguments like parse(), after translating the original program's flags.
std::optional<int> parse_recipe(CLI::App& app, int argc, char** argv);

// A recipe from its file, changed by arguments such as --data-dir. UserError where it is none.
Recipe read_recipe(const std::string& file, const std::vector<std::string>& changes);

}  // namespace lowtide
