#pragma once

#include <span>
#include <string_view>

namespace lowtide {

// Each subcommand has a file of its own, named after it, and reads argv[1..] as its own arguments (argv[0] is its
// name). It returns the exit code of the program.
struct Command {
  std::string_view name;
  int (*run)(int argc, char** argv);
  std::string_view purpose;
  bool computes = false;  // with tensors, here or in a child: libraries are tuned for it
};

// In the order in which the program lists them.
std::span<const Command> commands();

int advise_command(int argc, char** argv);
int bench_command(int argc, char** argv);
int compare_command(int argc, char** argv);
int cost_command(int argc, char** argv);
int data_command(int argc, char** argv);
int eval_command(int argc, char** argv);
int landscape_command(int argc, char** argv);  // study landscape
int models_command(int argc, char** argv);
int predict_command(int argc, char** argv);
int range_test_command(int argc, char** argv);
int report_command(int argc, char** argv);
int schedule_command(int argc, char** argv);
int serve_command(int argc, char** argv);
int study_command(int argc, char** argv);
int train_command(int argc, char** argv);

}  // namespace lowtide
