#include <fmt/format.h>

#include <string>

#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/parse.h"
#include "lowtide/base/suggest.h"

namespace lowtide {

int completion_command(int argc, char** argv) {
  constexpr const char* kShells = "bash|zsh|fish";
  std::string shell;
  CLI::App app(
      "Print a script that lets the shell complete commands, options and values. `make install` puts it "
      "where shells "
      "look;\nwithout that:\n"
      "\n"
      "  bash   eval \"$(lowtide completion bash)\"            in ~/.bashrc\n"
      "  zsh    lowtide completion zsh > FOLDER/_lowtide      a folder of $fpath\n"
      "  fish   lowtide completion fish > ~/.config/fish/completions/lowtide.fish",
      "completion");
  app.add_option("SHELL", shell, "which shell")->required()->type_name(kShells);
  if (const auto code = parse(app, argc, argv)) return *code;
  expect_choice("shell", shell, kShells);
  const std::vector<CommandTable> tables = command_tables();
  fmt::print("{}", shell == "bash"  ? bash_completion(tables)
                   : shell == "zsh" ? zsh_completion(tables)
                                    : fish_completion(tables));
  return 0;
}

}  // namespace lowtide
