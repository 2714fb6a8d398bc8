#pragma once

#include <CLI/CLI.hpp>
#include <optional>

namespace lowtide {

// Parses a subcommand's arguments. Returns the exit code if the command is to end here (help was asked for);
// a mistake is a UserError of one line.
std::optional<int> parse(CLI::App& app, int argc, char** argv);

}  // namespace lowtide
