#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>

#include "lowtide/recipe/keys.h"
#include "lowtide/recipe/recipe_file.h"

namespace lowtide {
namespace {

// CLI11 reads -1 as a large unsigned number, and one that is too large as the largest there is.
template <typename T>
std::string whole_number_error(const std::string& text) {
  T value{};
  const char* first = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(first, last, value);
  if (error == std::errc() && end == last && first != last) return "";
  return fmt::format("{} is not a whole number from {} to {}", text, std::numeric_limits<T>::min(),
                     std::numeric_limits<T>::max());
}

template <typename T>
void define(CLI::App& app, const RecipeKey& key, T& value) {
  const std::string flag = "--" + key.name;
  if constexpr (std::is_same_v<T, bool>) {
    app.add_flag(flag + ",!--no-" + key.name, value, key.help);
  } else {
    CLI::Option* option = app.add_option(flag, value, key.help)->capture_default_str();
    if constexpr (std::is_integral_v<T>) option->check(whole_number_error<T>);
    if (!key.accepted.kind.empty()) option->type_name(std::string(key.accepted.kind));
  }
}

}  // namespace

void define_recipe(CLI::App& app, Recipe& recipe) {
  app.config_formatter(std::make_shared<RecipeFile>(app));
  for (const RecipeKey& key : recipe_keys(recipe)) {
    app.option_defaults()->group(std::string(key.group));
    std::visit([&](auto* value) { define(app, key, *value); }, key.value);
  }
  app.option_defaults()->group("Options");
}

}  // namespace lowtide
