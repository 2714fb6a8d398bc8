#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lowtide/study/study.h"

namespace lowtide {

// A study's members may be runs of anything that writes a run folder: a command with {schedule}, {seed} and {out}, and
// {steps} if it likes, in which each member puts its own.

// UserError for a command that lacks one of the three, or has another.
void check_command(const std::string& command);

// What /bin/sh is given: the member's words in place, each quoted. The command takes the shell's place, so that signals
// reach it.
std::vector<std::string> shell_arguments(const Member& member, const std::filesystem::path& out, int threads);

}  // namespace lowtide
