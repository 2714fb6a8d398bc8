#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lowtide {

// Each subcommand has a file of its own, named after it, and reads argv[1..] as its own arguments (argv[0] is its
// name). It returns the exit code of the program.
struct Command {
  std::string_view name;
  int (*run)(int argc, char** argv);
  std::string_view purpose;
  std::span<const Command> parts;  // of a command that has commands of its own
  bool computes = false;           // with tensors, here or in a child: libraries are tuned for it
};

// In the order in which the program lists them.
std::span<const Command> commands();
std::span<const Command> study_commands();
std::span<const Command> data_commands();

// UserError for a name that none has. `parent` is the command that they are parts of, if any.
const Command& find_command(std::span<const Command> among, std::string_view name,
                            std::string_view parent = "");

// What the program prints of itself where no command is named.
std::string usage();

int advise_command(int argc, char** argv);
int bench_command(int argc, char** argv);
int compare_command(int argc, char** argv);
int completion_command(int argc, char** argv);
int cost_command(int argc, char** argv);
int data_command(int argc, char** argv);
int eval_command(int argc, char** argv);
int export_command(int argc, char** argv);
int help_command(int argc, char** argv);
int landscape_command(int argc, char** argv);  // study landscape
int man_command(int argc, char** argv);
int models_command(int argc, char** argv);
int predict_command(int argc, char** argv);
int range_test_command(int argc, char** argv);
int report_command(int argc, char** argv);
int schedule_command(int argc, char** argv);
int serve_command(int argc, char** argv);
int study_command(int argc, char** argv);
int train_command(int argc, char** argv);

}  // namespace lowtide
