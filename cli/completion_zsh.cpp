#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion.h"
#include "cli/recipe_arguments.h"

namespace lowtide {
namespace {

constexpr const char* kZshBegin = R"(#compdef lowtide
# zsh completion of lowtide; made by `lowtide completion zsh`

_lowtide_recipes() {
  local -a recipes=(RECIPES)
  _alternative 'recipes:recipe:compadd -a recipes' 'files:file:_files'
}

_lowtide() {
  if (( CURRENT == 2 )); then
    local -a commands=(
COMMANDS    )
    _describe -t commands command commands
    return
  fi
  # From here on the first word is the command, or its part.
  shift words
  (( CURRENT-- ))
  case $words[1] in
)";

constexpr const char* kZshEnd = R"(  esac
}

_lowtide "$@"
)";

std::string in_zsh_quotes(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

// Within a specification of _arguments or _describe.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

// What completes the value: `message:action`. Of what has names and files there are recipes alone.
std::string action(const OptionRow& row) {
  const std::string words = fmt::format("{}", fmt::join(row.words, " "));
  std::string how = row.words.empty() ? " " : fmt::format("({})", words);
  if (row.files || row.folders) {
    how = row.files ? "_files" : "_files -/";
    if (!words.empty()) how = "_lowtide_recipes";
  }
  return fmt::format("{}:{}", escaped(row.is_argument ? row.names[0] : row.value), how);
}

std::vector<std::string> specifications(const OptionRow& row) {
  if (row.is_argument) return {fmt::format("{}:{}", row.many ? "*" : row.required ? "1" : "1:", action(row))};
  std::vector<std::string> result;
  for (const std::string& name : row.names) {
    const bool is_long = name.starts_with("--");
    std::string text = fmt::format("{}{}", row.many ? "*" : "", name);
    if (!row.value.empty()) text += is_long ? "=" : "+";
    text += fmt::format("[{}]", escaped(row.help));
    if (!row.value.empty()) text += fmt::format("{}:{}", row.optional_value ? ":" : "", action(row));
    result.push_back(text);
  }
  return result;
}

std::string described(const std::vector<CommandTable>& tables, const std::string& before,
                      const std::string& indent) {
  std::string text;
  for (const CommandTable& table : tables) {
    if (!table.name.starts_with(before)) continue;
    const std::string name = table.name.substr(before.size());
    if (name.find(' ') != std::string::npos) continue;
    text += fmt::format("{}{}\n", indent, in_zsh_quotes(fmt::format("{}:{}", name, escaped(table.purpose))));
  }
  return text;
}

std::string arguments(const CommandTable& table, const std::string& indent) {
  std::string text = indent + "_arguments -S";
  for (const OptionRow& row : table.rows) {
    for (const std::string& specification : specifications(row))
      text += fmt::format(" \\\n{}  {}", indent, in_zsh_quotes(specification));
  }
  return text + " ;;\n";
}

// A command with parts: its parts, then what each of them takes.
std::string parts(const CommandTable& parent, const std::vector<CommandTable>& tables) {
  const std::string before = parent.name + " ";
  std::string text = fmt::format(
      "    if (( CURRENT == 2 )); then\n      local -a parts=(\n{}      )\n      _describe -t commands '{} "
      "command' "
      "parts\n      return\n    fi\n    shift words\n    (( CURRENT-- ))\n    case $words[1] in\n",
      described(tables, before, "        "), parent.name);
  for (const CommandTable& table : tables) {
    if (table.name.starts_with(before))
      text += fmt::format("    {})\n{}", table.name.substr(before.size()), arguments(table, "      "));
  }
  return text + "    esac ;;\n";
}

}  // namespace

std::string zsh_completion(const std::vector<CommandTable>& tables) {
  std::string text = kZshBegin;
  const auto put = [&](std::string_view place, const std::string& what) {
    text.replace(text.find(place), place.size(), what);
  };
  put("RECIPES", fmt::format("{}", fmt::join(recipe_names(), " ")));
  put("COMMANDS", described(tables, "", "      "));
  for (const CommandTable& table : tables) {
    if (table.name.find(' ') != std::string::npos) continue;
    text += fmt::format("  {})\n{}", table.name,
                        table.parts.empty() ? arguments(table, "    ") : parts(table, tables));
  }
  return text + kZshEnd;
}

}  // namespace lowtide
