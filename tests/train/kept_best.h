#pragma once

#include <filesystem>

#include "lowtide/recipe/recipe.h"

namespace lowtide {

// Trains the recipe with --keep-best, with each engine, and expects what a run must keep then: the weights of the evaluation that the metrics
// show to be the best, told apart from the last.
void expect_keeps_best(const Recipe& recipe, const std::filesystem::path& folder);

}  // namespace lowtide
