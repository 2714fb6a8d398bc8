#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/recipe_arguments.h"
#include "lowtide/base/error.h"
#include "lowtide/cost/bit_operations.h"
#include "lowtide/cost/summary.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/trainer.h"

namespace lowtide {

int cost_command(int argc, char** argv) {
  Recipe recipe;
  bool json = false;
  CLI::App app("Print the bit operations a recipe will take, layer by layer, without training.", "cost");
  app.add_flag("--json", json, "print JSON")->configurable(false);
  add_recipe_options(app, recipe);
  if (const auto code = parse_recipe(app, argc, argv)) return *code;
  if (recipe.data_dir.empty()) recipe.data_dir = "data";  // need not be there
  check(recipe);
  const TaskShape shape = shape_of_task(recipe);
  const ScheduleSpec spec = schedule_of(recipe);
  const std::int64_t steps = total_steps(recipe, shape.steps_an_epoch);
  const ScheduleSummary summary = summarise(spec, steps);
  constexpr std::int64_t kMostItems = std::int64_t{1} << 56;  // of the ledger
  if (shape.items_a_step > kMostItems / steps) {
    throw UserError(fmt::format("{} steps of {} are more than can be counted; expected at most {} in all",
                                steps, shape.items_a_step, kMostItems));
  }
  Ledger ledger;
  for (const Ledger::Layer& layer : shape.layers) ledger.add_layer(layer.name, layer.macs, layer.precision);
  for (const BitRun& run : summary.runs) ledger.add(run.bits, run.count * shape.items_a_step);
  if (json) {
    fmt::print("{}\n", Json{{"model", recipe.model},
                            {"schedule", to_string(spec)},
                            {"steps", steps},
                            {"items_a_step", shape.items_a_step},
                            {"relative_cost", summary.relative_cost},
                            {"saving", summary.saving},
                            {"assumed", shape.assumed},
                            {"ledger", ledger.to_json()}}
                           .dump(2));
    return 0;
  }
  fmt::print("{}, {}, {} steps of {}\n\n{}\n", recipe.model, to_string(spec), steps, shape.items_a_step,
             ledger.format_table());
  fmt::print("relative cost {:.4f} of fp32, saving {:.2f} % against static {} bits\n", summary.relative_cost,
             100 * summary.saving, width(spec.highest().forward));
  if (!shape.assumed.empty()) fmt::print(stderr, "note: {}\n", shape.assumed);
  return 0;
}

}  // namespace lowtide
