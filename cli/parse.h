#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>

#include "cli/commands.h"

namespace lowtide {

// What --device takes.
inline constexpr const char* kDevices = "cpu|cuda";

// Parses a subcommand's arguments. Returns the exit code if the command is to end here (help was asked for);
// a mistake is a UserError of one line.
std::optional<int> parse(CLI::App& app, int argc, char** argv);

// For an option that names a file to write: one of a run's own files is refused.
CLI::Validator no_file_of_a_run();

// Shows `use` the command's options as it defines them: the command is called, and ends where it would parse its arguments.
void with_options_of(const Command& command, const std::function<void(const CLI::App&)>& use);

}  // namespace lowtide
