#include "cli/commands.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"

namespace lowtide {

std::span<const Command> commands() {
  constexpr bool kComputes = true;
  static const std::array kCommands{
      Command{"train", train_command, "train on a schedule; writes a run folder, resumes one", {}, kComputes},
      Command{
          "eval", eval_command, "evaluate a run, or a checkpoint, at a declared precision", {}, kComputes},
      Command{"predict", predict_command, "find objects in images, draw their boxes", {}, kComputes},
      Command{
          "export", export_command, "write a trained network as an ONNX file, or its weights", {}, kComputes},
      Command{"compare", compare_command, "finished runs in one table", {}},
      Command{"report", report_command, "a page of figures and tables about runs, in one file", {}},
      Command{"serve", serve_command, "the same page, live, while runs go on", {}},
      Command{"schedule", schedule_command, "draw a precision schedule, with its cost; compare the ten", {}},
      Command{"cost", cost_command, "bit operations of a recipe, layer by layer, without training", {}},
      Command{"data", data_command, "read the data of a recipe: counts, classes, what is damaged",
              data_commands(), kComputes},
      Command{"range-test", range_test_command, "the lowest bits at which a network learns", {}, kComputes},
      Command{"advise", advise_command, "a schedule for a budget or a goal, with reasons", {}},
      Command{"study", study_command,
              "many runs: every schedule, equal cost, critical periods; analysis; landscapes",
              study_commands(), kComputes},
      Command{"models", models_command, "the networks, with parameters and MACs", {}},
      Command{
          "bench", bench_command, "time and memory of a training step, or of single layers", {}, kComputes},
      Command{"help", help_command, "the options of a command", {}},
      Command{"man", man_command, "the manual page of a command", {}},
      Command{"completion", completion_command, "commands and options completed by the shell", {}},
  };
  return kCommands;
}

const Command& find_command(std::span<const Command> among, std::string_view name, std::string_view parent) {
  std::vector<std::string_view> names;
  for (const Command& command : among) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  const std::string before = parent.empty() ? "" : fmt::format("{} ", parent);
  throw UserError(fmt::format("unknown command '{}{}'{}; `lowtide {}--help` lists them", before, name,
                              did_you_mean(name, names), before));
}

std::string usage() {
  std::string text =
      "lowtide: neural networks trained in low precision, on a schedule\n\n"
      "usage: lowtide COMMAND [options]      lowtide COMMAND --help\n\n";
  for (const Command& command : commands())
    text += fmt::format("  {:<10} {}\n", command.name, command.purpose);
  return text;
}

}  // namespace lowtide
