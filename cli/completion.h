#pragma once

#include <string>
#include <vector>

#include "cli/option_table.h"

namespace lowtide {

// Scripts that let a shell complete commands, options and their values. Everything is in them: to start the program takes
// half a second, which is too long for a key.
std::string bash_completion(const std::vector<CommandTable>& tables);
std::string zsh_completion(const std::vector<CommandTable>& tables);
std::string fish_completion(const std::vector<CommandTable>& tables);

}  // namespace lowtide
