#include "cli/study_arguments.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/io/lease.h"
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

void fit_to_network(Study& study) {
  if (!has_bits_for_layers(study)) return;
  for (const ImpossibleSetting& one : fit_to_layers(study, shape_of_task(study.recipe).sizes))
    print_line(fmt::format("left out: {}: {}", one.setting, one.reason));
  complete(study);
}

void expect_kind(const Study& study, const std::string& kind) {
  if (study.kind == kind) return;
  throw UserError(fmt::format("this is the file of a study of kind '{}'; run it with: lowtide {}{}",
                              study.kind, study.kind == Study::kRangeTest ? "" : "study ", study.kind));
}

void expect_none_elsewhere(const RunnerEnd& end, std::size_t members) {
  if (end.elsewhere.empty()) return;
  throw LeaseTaken(fmt::format(
      "{} of {} runs are trained elsewhere, the first, {}, by {}; give the command again when they "
      "are done",
      end.elsewhere.size(), members, end.elsewhere[0].name, end.elsewhere[0].writer));
}

void print_line(const std::string& line) { print_or_drop(line + "\n"); }

}  // namespace lowtide
