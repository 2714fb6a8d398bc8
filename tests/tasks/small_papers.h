#pragma once

#include <filesystem>

#include "lowtide/recipe/recipe.h"

namespace lowtide {

// 120 papers of three classes in the citation format: a paper cites four of its own class and has words of its class, and
// some by chance.
void write_papers(const std::filesystem::path& folder);

// A GCN on them that learns in few steps.
Recipe node_recipe(const std::filesystem::path& data);

}  // namespace lowtide
