#pragma once

namespace lowtide {

// Each subcommand has a file of its own, named after it, and reads argv[1..] as its own arguments (argv[0] is
// its name). It returns the exit code of the program.
int schedule_command(int argc, char** argv);

}  // namespace lowtide
