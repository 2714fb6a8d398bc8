#pragma once

#include <string>
#include <vector>

namespace lowtide {

// What manual pages and shells are told of an option, or of an argument that is none.
struct OptionRow {
  std::vector<std::string> names;  // --cycles, -n; or that of the argument: RUN
  std::string value;               // what follows, as help shows it: FILE, cpu|cuda; empty: nothing
  std::string preset;              // the value without it
  std::string help, group;
  bool is_argument = false, required = false, optional_value = false;
  bool many = false;               // several values may follow
  std::vector<std::string> words;  // that the value may be, as far as they are known
  bool files = false, folders = false;
};

// A command with its options, read from where it parses them.
struct CommandTable {
  std::string name;  // "train", "study suite"
  std::string purpose, description;
  std::vector<OptionRow> rows;
  std::vector<std::string> parts;  // "suite" and so on, of "study"
};

// Every command, and after each that has parts those.
std::vector<CommandTable> command_tables();

}  // namespace lowtide
