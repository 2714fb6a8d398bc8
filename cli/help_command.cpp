#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/parse.h"

namespace lowtide {

int help_command(int argc, char** argv) {
  std::vector<std::string> words;
  CLI::App app(
      "Say what a command does and which options it has: `lowtide help train` is `lowtide train --help`.",
      "help");
  app.add_option("COMMAND", words, "a command, or two words such as study suite")->expected(0, 2);
  if (const auto code = parse(app, argc, argv)) return *code;
  if (words.empty()) return fmt::print("{}", usage()), 0;
  const Command& command = find_command(commands(), words[0]);
  words.emplace_back("--help");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return command.run(static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace lowtide
