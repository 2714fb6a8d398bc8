#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <exception>
#include <string_view>

#include "cli/commands.h"
#include "cli/runtime.h"
#include "lowtide/base/error.h"

namespace {

struct Command {
  std::string_view name;
  int (*run)(int argc, char** argv);
  std::string_view purpose;
};

constexpr std::array kCommands{
    Command{"train", lowtide::train_command, "train on a schedule; writes a run folder, resumes one"},
    Command{"eval", lowtide::eval_command, "evaluate a checkpoint at a declared precision"},
    Command{"compare", lowtide::compare_command, "finished runs in one table"},
    Command{"schedule", lowtide::schedule_command,
            "draw a precision schedule, with its cost; compare the ten"},
    Command{"cost", lowtide::cost_command, "bit operations of a recipe, layer by layer, without training"},
    Command{"models", lowtide::models_command, "the networks, with parameters and MACs"},
    Command{"bench", lowtide::bench_command, "time and memory of a training step, engine by engine"},
};

int usage(std::FILE* where, int code) {
  fmt::print(where, "lowtide: neural networks trained in low precision, on a schedule\n\n");
  fmt::print(where, "usage: lowtide COMMAND [options]      lowtide COMMAND --help\n\n");
  for (const Command& command : kCommands) fmt::print(where, "  {:<10} {}\n", command.name, command.purpose);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return usage(stderr, 2);
  const std::string_view name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") return usage(stdout, 0);
  if (name == "--version") return fmt::print("{}\n", lowtide::program_version()), 0;
  try {
    for (const Command& command : kCommands) {
      if (command.name == name) return command.run(argc - 1, argv + 1);
    }
    throw lowtide::UserError(fmt::format("unknown command '{}'; `lowtide --help` lists them", name));
  } catch (const lowtide::UserError& error) {
    fmt::print(stderr, "lowtide: {}\n", error.what());
    return 2;
  } catch (const c10::Error& error) {
    fmt::print(stderr, "lowtide: internal error in libtorch: {}\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lowtide: internal error: {}\n", error.what());
    return 1;
  }
}
