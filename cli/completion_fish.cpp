#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion.h"

namespace lowtide {
namespace {

constexpr const char* kFishBegin = R"(# fish completion of lowtide; made by `lowtide completion fish`

# Whether the line begins with these words after the program's name.
function __lowtide_is
    set -l line (commandline -opc)
    set -l last (math (count $argv) + 1)
    test (count $line) -ge $last; and test "$line[2..$last]" = "$argv"
end

# Whether it consists of them: a command, or a part of it, comes next.
function __lowtide_after
    set -l line (commandline -opc)
    test (count $line) -eq (math (count $argv) + 1); and test "$line[2..]" = "$argv"
end

complete -c lowtide -f
)";

std::string in_fish_quotes(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return result + "'";
}

// What completes the value.
std::string values(const OptionRow& row) {
  std::string words = fmt::format("{}", fmt::join(row.words, " "));
  if (row.folders) words += "(__fish_complete_directories)";
  const std::string after = words.empty() ? "" : " -a " + in_fish_quotes(words);
  return (row.files ? " -F" : "") + after;
}

std::string option(const std::string& condition, const OptionRow& row) {
  std::string text = "complete -c lowtide -n " + in_fish_quotes(condition);
  for (const std::string& name : row.names) {
    if (!row.is_argument) text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!row.value.empty() && !row.is_argument && !row.optional_value) text += row.files ? " -r" : " -x";
  if (!row.value.empty()) text += values(row);
  if (!row.is_argument) text += " -d " + in_fish_quotes(row.help);
  return text + "\n";
}

}  // namespace

std::string fish_completion(const std::vector<CommandTable>& tables) {
  std::string text = kFishBegin;
  for (const CommandTable& table : tables) {
    const auto space = table.name.find(' ');
    const std::string parent = space == std::string::npos ? "" : " " + table.name.substr(0, space);
    const std::string name = space == std::string::npos ? table.name : table.name.substr(space + 1);
    text += fmt::format("complete -c lowtide -n {} -a {} -d {}\n", in_fish_quotes("__lowtide_after" + parent),
                        name, in_fish_quotes(table.purpose));
    for (const OptionRow& row : table.rows) text += option("__lowtide_is " + table.name, row);
  }
  return text;
}

}  // namespace lowtide
