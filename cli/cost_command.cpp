#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/recipe_arguments.h"
#include "lowtide/base/error.h"
#include "lowtide/cost/summary.h"
#include "lowtide/schedule/text.h"
#include "lowtide/tasks/task.h"
#include "lowtide/train/learning_rate.h"
#include "lowtide/train/run_length.h"

namespace lowtide {

int cost_command(int argc, char** argv) {
  Recipe recipe;
  bool json = false;
  CLI::App app("Print the bit operations a recipe will take, layer by layer, without training.", "cost");
  app.add_flag("--json", json, "print JSON")->configurable(false);
  add_recipe_options(app, recipe);
  if (const auto code = parse_recipe(app, argc, argv)) return *code;
  if (recipe.data.dir.empty()) recipe.data.dir = "data";  // need not be there
  check(recipe);
  const TaskShape shape = shape_of_task(recipe);
  const ScheduleSpec spec = schedule_of(recipe.precision);
  const std::int64_t steps = total_steps(recipe.training, shape.steps_per_epoch);
  const Rates rates = rates_of(recipe.training, steps);
  const ScheduleSummary summary = summarise(spec, steps, rates);
  if (shape.items_per_step > Ledger::kMostItems / steps) {
    throw UserError(fmt::format("{} steps of {} are more than can be counted; expected at most {} in all",
                                steps, shape.items_per_step, Ledger::kMostItems));
  }
  Ledger ledger;
  for (const Ledger::Layer& layer : shape.layers) ledger.add_layer(layer.name, layer.macs, layer.precision);
  Ledger at_peak = ledger;
  make_schedule(spec, steps, rates, shape.sizes);  // refuses what training would
  for (const BitRun& run : summary.runs) {
    const std::int64_t items = run.count * shape.items_per_step;
    if (run.layers.empty()) {
      ledger.add(run.bits, items);
    } else {
      ledger.add(run.bits, run.layers, items, {});
    }
  }
  at_peak.add(peak_bits(spec), steps * shape.items_per_step);
  // The summary knows of no layers.
  const bool are_alike = std::all_of(summary.runs.begin(), summary.runs.end(),
                                     [](const BitRun& run) { return run.layers.empty(); });
  const double paper_cost = are_alike ? summary.relative_cost : relative_cost(ledger.paper(), ledger.macs());
  const double paper_saving = are_alike ? summary.saving : 1 - paper_cost / relative_cost(peak_bits(spec));
  const double actual_cost = relative_cost(ledger.actual(), ledger.macs());
  const double actual_saving = 1 - actual_cost / relative_cost(at_peak.actual(), ledger.macs());
  if (spec.is_closed_loop()) fmt::print(stderr, "note: {}\n", closed_loop_note(spec));
  if (json) {
    fmt::print("{}\n", Json{{"model", recipe.model.name},
                            {"schedule", to_string(spec)},
                            {"steps", steps},
                            {"items_per_step", shape.items_per_step},
                            {"relative_cost", paper_cost},
                            {"relative_cost_actual", actual_cost},
                            {"saving", paper_saving},
                            {"saving_actual", actual_saving},
                            {"saving_against", static_line(peak_bits(spec))},
                            {"assumed", shape.assumed},
                            {"ledger", ledger.to_json()}}
                           .dump(2));
    return 0;
  }
  fmt::print("{}, {}, {} steps of {}\n\n{}\n", recipe.model.name, shortened(to_string(spec)), steps,
             shape.items_per_step, ledger.format_table());
  const std::string against = static_line(peak_bits(spec));
  fmt::print("actual  cost {:.4f} of fp32, saving {:.2f} % against {}: each layer at the bits it runs at\n",
             actual_cost, 100 * actual_saving, against);
  fmt::print("paper   cost {:.4f} of fp32, saving {:.2f} % against {}: every layer at the scheduled bits\n",
             paper_cost, 100 * paper_saving, against);
  if (!shape.assumed.empty()) fmt::print(stderr, "note: {}\n", shape.assumed);
  return 0;
}

}  // namespace lowtide
