#pragma once

#include <cstdint>

#include "lowtide/recipe/recipe.h"

// What follows from the number of steps of a run.

namespace lowtide {

// The steps a recipe asks for.
std::int64_t total_steps(const TrainingOptions& training, double steps_per_epoch);

// Where averaging of the weights starts, in steps done; beyond the end: never.
std::int64_t first_averaged_step(const TrainingOptions& training, std::int64_t total);

// A run of `planned` steps, of which `done` are made, goes on to `total`: as a run of so many steps would have been from
// its first. UserError, with the reason, where one of the steps made would have been another.
void check_can_extend(const Recipe& recipe, std::int64_t planned, std::int64_t total, std::int64_t done);

}  // namespace lowtide
