#include "cli/parse.h"

#include <fmt/format.h>

#include <cstdio>

#include "lowtide/base/error.h"

namespace lowtide {

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    throw UserError(
        fmt::format("{}: {}; see `lowtide {} --help`", app.get_name(), error.what(), app.get_name()));
  }
  return std::nullopt;
}

}  // namespace lowtide
