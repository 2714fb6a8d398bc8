#pragma once

#include <string>
#include <vector>

#include "lowtide/recipe/recipe.h"

namespace lowtide {

// A recipe from arguments, as the program reads them. Throws CLI::ParseError.
Recipe parse_arguments(std::vector<std::string> arguments);

// Another value in every key.
Recipe unusual_recipe();

}  // namespace lowtide
