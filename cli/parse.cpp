#include "cli/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "lowtide/base/error.h"

namespace lowtide {

namespace {

// The parser's own words, where a user would not understand them.
std::string plain(std::string what) {
  constexpr std::string_view kUnknownKey = "INI was not able to parse ";
  if (what.starts_with(kUnknownKey)) return fmt::format("unknown key '{}'", what.substr(kUnknownKey.size()));
  std::replace(what.begin(), what.end(), '\n', ' ');
  return what;
}

}  // namespace

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help("lowtide"));
    return 0;
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
