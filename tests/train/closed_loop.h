#pragma once

#include <filesystem>
#include <string>

#include "lowtide/recipe/recipe.h"

namespace lowtide {

// Of a safetensors file, whose header has its length before it.
std::string tensor_bytes(const std::filesystem::path& file);

// The table of bits that a run had, from its lines of training alone.
std::string table_of_run(const std::filesystem::path& run);

// With each engine: a run on `line`, whose loop moves bits, leaves the tensors and the state of one that has the same bits from
// a table. What the loop computes to decide changes nothing else.
void expect_loop_trains_as_its_table(Recipe recipe, const std::string& line,
                                     const std::filesystem::path& folder);

}  // namespace lowtide
