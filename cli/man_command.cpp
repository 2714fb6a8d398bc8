#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/man_page.h"
#include "cli/parse.h"
#include "cli/runtime.h"
#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/io/file.h"

namespace lowtide {
namespace {

const CommandTable& find_table(const std::vector<CommandTable>& tables, const std::string& name) {
  std::vector<std::string_view> names;
  for (const CommandTable& table : tables) {
    if (table.name == name) return table;
    names.push_back(table.name);
  }
  throw UserError(
      fmt::format("unknown command '{}'{}; `lowtide --help` lists them", name, did_you_mean(name, names)));
}

void write_pages(const std::filesystem::path& folder, const std::vector<CommandTable>& tables) {
  std::filesystem::create_directories(folder);
  write_atomically(folder / "lowtide.1", program_page(tables, program_version()));
  for (const CommandTable& table : tables)
    write_atomically(folder / (page_name(table) + ".1"), command_page(table, program_version()));
}

}  // namespace

int man_command(int argc, char** argv) {
  std::vector<std::string> words;
  std::string folder;
  CLI::App app(
      "Print a manual page, of the program or of a command: `lowtide man train | man -l -`. `make install` "
      "installs "
      "them all.",
      "man");
  app.add_option("COMMAND", words, "a command, or two words such as study suite")->expected(0, 2);
  app.add_option("--out", folder, "write every page into this folder instead")->type_name("FOLDER");
  if (const auto code = parse(app, argc, argv)) return *code;
  const std::vector<CommandTable> tables = command_tables();
  if (!folder.empty()) return write_pages(folder, tables), 0;
  const std::string name = fmt::format("{}", fmt::join(words, " "));
  fmt::print("{}", words.empty() ? program_page(tables, program_version())
                                 : command_page(find_table(tables, name), program_version()));
  return 0;
}

}  // namespace lowtide
