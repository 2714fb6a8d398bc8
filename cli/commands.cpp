#include "cli/commands.h"

#include <array>

namespace lowtide {

std::span<const Command> commands() {
  constexpr bool kComputes = true;
  static constexpr std::array kCommands{
      Command{"train", train_command, "train on a schedule; writes a run folder, resumes one", kComputes},
      Command{"eval", eval_command, "evaluate a run, or a checkpoint, at a declared precision", kComputes},
      Command{"predict", predict_command, "find objects in images, draw their boxes", kComputes},
      Command{"compare", compare_command, "finished runs in one table"},
      Command{"report", report_command, "a page of figures and tables about runs, in one file"},
      Command{"serve", serve_command, "the same page, live, while runs go on"},
      Command{"schedule", schedule_command, "draw a precision schedule, with its cost; compare the ten"},
      Command{"cost", cost_command, "bit operations of a recipe, layer by layer, without training"},
      Command{"data", data_command, "read the data of a recipe: counts, classes, what is damaged", kComputes},
      Command{"range-test", range_test_command, "the lowest bits at which a network learns", kComputes},
      Command{"advise", advise_command, "a schedule for a budget or a goal, with reasons"},
      Command{"study", study_command, "many runs: every schedule, critical periods; analysis; landscapes",
              kComputes},
      Command{"models", models_command, "the networks, with parameters and MACs"},
      Command{"bench", bench_command, "time and memory of a training step, or of single layers", kComputes},
  };
  return kCommands;
}

}  // namespace lowtide
