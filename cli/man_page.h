#pragma once

#include <string>
#include <vector>

#include "cli/option_table.h"

namespace lowtide {

// A manual page, as groff's man macros read it: of the program, with its commands; or of a command.
std::string program_page(const std::vector<CommandTable>& tables, const std::string& version);
std::string command_page(const CommandTable& table, const std::string& version);

// "lowtide-study-suite", the page's name.
std::string page_name(const CommandTable& table);

}  // namespace lowtide
