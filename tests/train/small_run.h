#pragma once

#include <filesystem>
#include <string>

#include "lowtide/recipe/recipe.h"

namespace lowtide {

// A data set of a few hundred small images in IDX files, made up but learnable: each class is a bright block
// in a place of its own, under noise.
void write_small_dataset(const std::filesystem::path& folder);

// A ResNet-8 on it, on a schedule with many changes of bits in few steps.
Recipe small_recipe(const std::filesystem::path& data);

std::string file_bytes(const std::filesystem::path& path);

}  // namespace lowtide
