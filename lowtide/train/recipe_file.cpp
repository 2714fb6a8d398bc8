#include "lowtide/train/recipe_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <iterator>
#include <set>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

[[noreturn]] void fail(const toml::source_region& where, const std::string& what) {
  throw CLI::ConfigError(fmt::format("line {}: {}", where.begin.line, what), CLI::ExitCodes::ConfigError);
}

// As a flag's value would be written.
std::string text_of(const std::string& key, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return fmt::to_string(whole->get());
  if (const auto* real = node.as_floating_point()) return fmt::to_string(real->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  fail(node.source(), fmt::format("{} must be text, a number, true or false, or a list of these", key));
}

std::vector<std::string> values_of(const std::string& key, const toml::node& node,
                                   const CLI::Option& option) {
  const toml::array* list = node.as_array();
  if (list == nullptr) return {text_of(key, node)};
  if (option.get_items_expected_max() <= 1)
    fail(node.source(), fmt::format("{} is one value, not a list", key));
  std::vector<std::string> values;
  for (const toml::node& element : *list) values.push_back(text_of(key, element));
  // CLI11 has no way to hand over nothing; where nothing is the default it need not.
  if (values.empty() && option.get_default_str().find_first_not_of("[]") != std::string::npos) {
    fail(node.source(), fmt::format("{} is an empty list; expected one value or more", key));
  }
  return values;
}

toml::table parse(std::istream& input) {
  const std::string text{std::istreambuf_iterator<char>(input), {}};
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(error.source(), std::string(error.description()));
  }
}

}  // namespace

std::vector<CLI::ConfigItem> RecipeFile::from_config(std::istream& input) const {
  const toml::table table = parse(input);
  std::vector<CLI::ConfigItem> entries;
  std::set<const CLI::Option*> seen;
  for (const auto& [name, node] : table) {
    const std::string key(name.str());
    if (node.is_table()) fail(node.source(), fmt::format("[{}]: a recipe has no sections", key));
    const CLI::Option* option = app_.get_option_no_throw("--" + key);
    if (option == nullptr || !option->get_configurable())
      fail(node.source(), fmt::format("unknown key '{}'", key));
    if (!seen.insert(option).second)
      fail(node.source(), fmt::format("{} is given twice, once as its opposite", key));
    std::vector<std::string> values = values_of(key, node, *option);
    if (values.empty()) continue;
    entries.emplace_back();
    entries.back().name = key;
    entries.back().inputs = std::move(values);
  }
  return entries;
}

std::string RecipeFile::to_flag(const CLI::ConfigItem& item) const {
  const std::string& value = item.inputs.at(0);
  if (value != "true" && value != "false") {
    throw CLI::ConversionError(fmt::format("{} is {}; expected true or false", item.name, value));
  }
  return value;
}

std::string RecipeFile::to_config(const CLI::App*, bool, bool, std::string) const {
  invariant_failed("to_toml()", __FILE__, __LINE__, "recipes are not written by CLI11");
}

}  // namespace lowtide
