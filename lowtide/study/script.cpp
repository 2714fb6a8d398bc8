#include "lowtide/study/script.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/schedule/text.h"
#include "lowtide/study/command.h"

namespace lowtide {
namespace {

constexpr std::array<std::string_view, 3> kRequired{"schedule", "seed", "out"};

// Calls text(part) and name(part) for what lies between braces and what does not, in order.
template <typename Text, typename Name>
void split_command(std::string_view command, const Text& text, const Name& name) {
  while (!command.empty()) {
    const auto open = command.find('{'), close = command.find('}', open);
    if (close == std::string_view::npos) break;
    text(command.substr(0, open));
    name(command.substr(open + 1, close - open - 1));
    command.remove_prefix(close + 1);
  }
  text(command);
}

}  // namespace

void check_command(const std::string& command) {
  std::map<std::string_view, int> names;
  split_command(
      command, [](std::string_view) {}, [&](std::string_view name) { ++names[name]; });
  for (const std::string_view name : kRequired) {
    if (names.contains(name)) continue;
    throw UserError(
        fmt::format("command {} lacks {{{}}}; expected {{schedule}}, {{seed}} and {{out}}, and {{steps}} "
                    "where the script takes it",
                    lowtide::quoted(command), name));
  }
  for (const auto& [name, count] : names) {
    expect_choice("a word in braces of the command", name, "schedule|seed|out|steps");
  }
}

std::vector<std::string> shell_arguments(const Member& member, const std::filesystem::path& out,
                                         int threads) {
  const std::map<std::string_view, std::string> values{
      {"schedule", to_string(schedule_of(member.recipe.precision))},
      {"seed", fmt::to_string(member.recipe.training.seed)},
      {"out", out.string()},
      {"steps", fmt::to_string(member.recipe.training.steps)}};
  std::string line = fmt::format("exec env OMP_NUM_THREADS={} ", threads);
  split_command(
      member.command, [&](std::string_view text) { line += text; },
      [&](std::string_view name) { line += shell_word(values.at(name)); });
  return {"-c", line};
}

}  // namespace lowtide
