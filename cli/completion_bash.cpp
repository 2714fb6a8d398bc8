#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion.h"

namespace lowtide {
namespace {

// _lowtide_table COMMAND OPTION sets what may follow; without an OPTION the command's options, and `@` is an argument that
// is none. It fails for an option that takes no value, or that is not known.
constexpr const char* kScript = R"(
_lowtide() {
  local current=${COMP_WORDS[COMP_CWORD]} command='' option='' words='' files='' many='' at first=2
  COMPREPLY=()
  (( COMP_CWORD > 1 )) && command=${COMP_WORDS[1]}
  case $command in
    PARENTS)
      (( COMP_CWORD > 2 )) && command+=" ${COMP_WORDS[2]}" first=3 ;;
  esac
  # The option before, and how far: bash makes three words of --option=value.
  [[ $current == '=' ]] && current=''
  for (( at = COMP_CWORD - 1; at >= first; --at )); do
    [[ ${COMP_WORDS[at]} == -* ]] && option=${COMP_WORDS[at]} && break
  done
  local between=$(( COMP_CWORD - at - 1 ))
  [[ ${COMP_WORDS[at + 1]} == '=' ]] && (( between > 0 && between-- ))
  if [[ -z $command ]]; then
    words='COMMANDS --help --version'
  elif [[ -n $option ]] && _lowtide_table "$command" "$option" && (( between == 0 || many )); then
    :
  elif [[ $current == -* ]]; then
    words='' files=''
    _lowtide_table "$command" ''
  else
    words='' files=''
    _lowtide_table "$command" '@'
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if [[ -n $files ]]; then
    compopt -o filenames 2> /dev/null
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen "-$files" -- "$current")
  fi
}

complete -F _lowtide lowtide
)";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

std::string words_text(const std::vector<std::string>& words) {
  return words.empty() ? "" : fmt::format(" words='{}'", fmt::join(words, " "));
}

// What the variables of _lowtide are set to for the option's value.
std::string settings(const OptionRow& row) {
  std::string text = words_text(row.words);
  if (row.files || row.folders) text += fmt::format(" files={}", row.files ? 'f' : 'd');
  if (row.many) text += " many=1";
  return text.empty() ? " :" : text;
}

std::string entry(const std::string& patterns, const std::string& what) {
  return fmt::format("    {}){} ;;\n", patterns, what);
}

std::string entries(const CommandTable& table) {
  std::vector<std::string> names;
  std::string text;
  for (const OptionRow& row : table.rows) {
    std::vector<std::string> patterns;
    for (const std::string& name : row.names) {
      patterns.push_back(fmt::format("'{} {}'", table.name, row.is_argument ? "@" : name));
      if (!row.is_argument) names.push_back(name);
    }
    if (!row.value.empty()) text += entry(fmt::format("{}", fmt::join(patterns, " | ")), settings(row));
  }
  if (!table.parts.empty()) {
    text += entry(fmt::format("'{} @'", table.name), words_text(table.parts));
    names = {"--help"};
  }
  return text + entry(fmt::format("'{} '", table.name), words_text(names));
}

}  // namespace

std::string bash_completion(const std::vector<CommandTable>& tables) {
  std::vector<std::string> commands, parents;
  std::string cases;
  for (const CommandTable& table : tables) {
    if (table.name.find(' ') == std::string::npos) commands.push_back(table.name);
    if (!table.parts.empty()) parents.push_back(table.name);
    cases += entries(table);
  }
  return "# bash completion of lowtide; made by `lowtide completion bash`\n\n"
         "_lowtide_table() {\n  case \"$1 $2\" in\n" +
         cases + "    *) return 1 ;;\n  esac\n}\n" +
         replaced(replaced(kScript, "PARENTS", fmt::format("{}", fmt::join(parents, " | "))), "COMMANDS",
                  fmt::format("{}", fmt::join(commands, " ")));
}

}  // namespace lowtide
