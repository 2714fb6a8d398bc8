#include "lowtide/recipe/recipe.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <sstream>

#include "fuzz/deep.h"
#include "lowtide/base/error.h"

namespace lowtide {
namespace {

Recipe read(const std::string& text) {
  Recipe recipe;
  CLI::App app("fuzz", "train");
  app.allow_config_extras(CLI::config_extras_mode::error);
  define_recipe(app, recipe);
  std::istringstream stream(text);
  app.parse_from_stream(stream);
  return recipe;
}

}  // namespace
}  // namespace lowtide

// A recipe file either is an error of the parser or of check(), or a recipe that is the same after it was
// written.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lowtide;
  try {
    const Recipe recipe = read(deepened(data, size));
    check(recipe);
    const std::string text = to_toml(recipe);
    try {
      LOWTIDE_CHECK(to_json(read(text)) == to_json(recipe), text);
    } catch (const CLI::ParseError& error) {
      LOWTIDE_CHECK(false, std::string(error.what()) + " in what was written: " + text);
    }
  } catch (const CLI::ParseError&) {
  } catch (const UserError&) {
  }
  return 0;
}
