#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/recipe/recipe.h"

namespace lowtide {

// Trains to the end and returns the result, as its file has it.
Json train(const Recipe& recipe, const std::filesystem::path& folder, bool resume = false);

std::string last_checkpoint(const Recipe& recipe, const std::filesystem::path& folder);

// Copies the folder as a process leaves it that was killed after the checkpoint of this step, and had logged further.
// Checkpoints, which nobody writes into, are linked.
void cut_after(const std::filesystem::path& run, const std::filesystem::path& copy, std::int64_t step);

// Metrics without what the clock says.
std::vector<Json> timeless_metrics(const std::filesystem::path& folder);

// Calls body(recipe, folder) with each engine of a CPU, not with the one that `auto` picks; each in a folder named after it.
void for_each_engine(Recipe recipe, const std::filesystem::path& folder,
                     const std::function<void(const Recipe&, const std::filesystem::path&)>& body);

// With each engine: trains the recipe (which gives its number of steps), once to the end in ENGINE/whole, and once more from
// the checkpoint of each of these steps; expects the same last checkpoint, byte for byte, the same result and the same
// metrics.
void expect_resumes_exactly(Recipe recipe, const std::filesystem::path& folder,
                            const std::vector<std::int64_t>& steps);

// With each engine: trains with one, two and three threads, of which as many read ahead; expects the same last checkpoint.
void expect_run_independent_of_threads(const Recipe& recipe, const std::filesystem::path& folder);

}  // namespace lowtide
