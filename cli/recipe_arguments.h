#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "lowtide/train/recipe.h"

namespace lowtide {

// Adds --recipe FILE and every option of a recipe.
void add_recipe_options(CLI::App& app, Recipe& recipe);

// Reads arguments like parse(), after translating the original program's flags.
std::optional<int> parse_recipe(CLI::App& app, int argc, char** argv);

}  // namespace lowtide
