#include "cli/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/schedule/text.h"
#include "lowtide/train/run_folder.h"

namespace lowtide {

namespace {

// The parser's own words, where a user would not understand them.
std::string plain(std::string what) {
  constexpr std::string_view kUnknownKey = "INI was not able to parse ";
  if (what.starts_with(kUnknownKey)) return fmt::format("unknown key '{}'", what.substr(kUnknownKey.size()));
  constexpr std::string_view kTwice = ": At Most 1 required but received 2";
  if (what.ends_with(kTwice))
    return fmt::format("{} is given twice; expected once", what.substr(0, what.size() - kTwice.size()));
  std::replace(what.begin(), what.end(), '\n', ' ');
  return what;
}

// Of the arguments that no option took the first that looks like one, or else the first.
std::string unknown_argument(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining();
  const auto flag =
      std::find_if(left.begin(), left.end(), [](const auto& word) { return word.starts_with("-"); });
  if (flag == left.end()) return fmt::format("unexpected argument {}", lowtide::quoted(left.at(0)));
  const std::string name = flag->substr(0, flag->find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& flag_name : option->get_lnames()) known.push_back("--" + flag_name);
  }
  return fmt::format("unknown option {}{}", lowtide::quoted(name),
                     did_you_mean(name, {known.begin(), known.end()}));
}

// Set while the options of a command are asked for (with_options_of).
const std::function<void(const CLI::App&)>* reader = nullptr;

}  // namespace

void with_options_of(const Command& command, const std::function<void(const CLI::App&)>& use) {
  bool seen = false;
  const std::function<void(const CLI::App&)> read = [&](const CLI::App& app) {
    seen = true;
    use(app);
  };
  std::string name(command.name);
  std::array<char*, 2> argv{name.data(), nullptr};
  reader = &read;
  command.run(1, argv.data());
  reader = nullptr;
  LOWTIDE_CHECK(seen, "the command " + name + " parses its arguments");
}

CLI::Validator no_file_of_a_run() {
  return {[](const std::string& file) {
            return belongs_to_run(file) ? fmt::format("{} is a file of a run; choose another name", file)
                                        : std::string();
          },
          ""};
}

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  if (reader != nullptr) return (*reader)(app), 0;
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help("lowtide"));
    return 0;
  } catch (const CLI::ExtrasError&) {
    throw UserError(fmt::format("{}: {}; see `lowtide {} --help`", app.get_name(), unknown_argument(app),
                                app.get_name()));
  } catch (const CLI::ConfigError& error) {
    throw UserError(fmt::format("{}: in the recipe file: {}; see `lowtide {} --help` for the keys",
                                app.get_name(), plain(error.what()), app.get_name()));
  } catch (const CLI::ParseError& error) {
    throw UserError(
        fmt::format("{}: {}; see `lowtide {} --help`", app.get_name(), plain(error.what()), app.get_name()));
  }
  return std::nullopt;
}

}  // namespace lowtide
