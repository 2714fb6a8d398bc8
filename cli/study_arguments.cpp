#include "cli/study_arguments.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/io/standard_output.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/run_length.h"

namespace lowtide {

std::int64_t steps_of(const Recipe& recipe, std::string* assumed) {
  if (recipe.training.steps > 0) return recipe.training.steps;
  check(recipe);
  const TaskShape shape = shape_of_task(recipe);
  if (assumed != nullptr) {
    *assumed = shape.assumed;
  } else if (!shape.assumed.empty()) {
    throw UserError(
        fmt::format("how many steps {} epochs are cannot be told without the data (say --steps): {}",
                    recipe.training.epochs, shape.assumed));
  }
  return total_steps(recipe.training, shape.steps_per_epoch);
}

void print_line(const std::string& line) { print_or_drop(line + "\n"); }

}  // namespace lowtide
