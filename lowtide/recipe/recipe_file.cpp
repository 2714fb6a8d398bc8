#include "lowtide/recipe/recipe_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <istream>
#include <set>
#include <string_view>

#include "lowtide/base/error.h"
#include "lowtide/base/suggest.h"
#include "lowtide/recipe/keys.h"

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

std::vector<std::string_view> keys_of(const CLI::App& app) {
  std::vector<std::string_view> keys;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_configurable() || option->get_lnames().empty()) continue;
    keys.push_back(option->get_lnames()[0]);
  }
  return keys;
}

// A recipe has no dotted keys, and a study's file neither; what a mistaken one may have, so that it is told of.
constexpr int kMaxKeyParts = 8;

// Where a string that begins at `at` ends: behind its closing quotes, or at the end of its line where it has none.
std::size_t skip_string(std::string_view text, std::size_t at) {
  const std::string_view quote = text.substr(at, 1);
  const std::string_view three = text.substr(at, 3);
  const bool multi_line = three.size() == 3 && three[1] == quote[0] && three[2] == quote[0];
  const std::string_view end = multi_line ? three : quote;
  for (at += end.size(); at < text.size(); ++at) {
    if (text.substr(at).starts_with(end)) return at + end.size();
    if (text[at] == '\n' && !multi_line) return at;
    if (text[at] == '\\' && quote == "\"") ++at;
  }
  return text.size();
}

// toml++ limits how deep values are nested, but not the parts of a key a.a.a…, each of which is a table in a table:
// with enough of them, the stack ends where those are taken apart.
void check_keys(std::string_view text) {
  int parts = 1;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '"' || text[at] == '\'') {
      at = skip_string(text, at);
      continue;
    }
    if (text[at] == '#') at = text.find('\n', at);
    if (at >= text.size()) return;
    if (text[at] == '.' && ++parts > kMaxKeyParts) {
      const auto line =
          static_cast<toml::source_index>(1 + std::count(text.begin(), text.begin() + at, '\n'));
      fail({{line, 1}, {line, 1}, nullptr}, fmt::format("a key of more than {} parts", kMaxKeyParts));
    }
    if (std::string_view("\n=,[]{}").find(text[at]) != std::string_view::npos) parts = 1;
    ++at;
  }
}

// No more than a recipe can have: the file may be a device that never ends.
std::string read_bounded(std::istream& input) {
  const auto refuse = [](const std::string& what) {
    throw CLI::ConfigError(what, CLI::ExitCodes::ConfigError);
  };
  std::string text(kMaxRecipeBytes + 1, '\0');
  input.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (input.bad()) refuse("it cannot be read");
  text.resize(static_cast<std::size_t>(input.gcount()));
  if (text.size() > kMaxRecipeBytes)
    refuse(fmt::format("more than {} bytes; is it the right file?", kMaxRecipeBytes));
  return text;
}

toml::table parse(std::istream& input) {
  const std::string text = read_bounded(input);
  check_keys(text);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(error.source(), std::string(error.description()));
  }
}

}  // namespace

std::string recipe_path_problem(const std::string& path) {
  std::error_code unknown;
  const bool named_pipe = std::filesystem::is_fifo(path, unknown) && !path.starts_with("/dev/");
  return named_pipe ? path + " is a pipe; expected a file" : "";
}

std::vector<CLI::ConfigItem> RecipeFile::from_config(std::istream& input) const {
  const toml::table table = parse(input);
  std::vector<CLI::ConfigItem> entries;
  std::set<const CLI::Option*> seen;
  for (const auto& [name, node] : table) {
    const std::string key(name.str());
    if (node.is_table()) fail(node.source(), fmt::format("[{}]: a recipe has no sections", key));
    const CLI::Option* option = app_.get_option_no_throw("--" + key);
    if (option == nullptr || !option->get_configurable())
      fail(node.source(), fmt::format("unknown key '{}'{}", key, did_you_mean(key, keys_of(app_))));
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

std::string to_toml(const Recipe& recipe) {
  Recipe copy = recipe;
  std::string text;
  std::string_view group;
  for (const RecipeKey& key : recipe_keys(copy)) {
    if (key.group != group) text += fmt::format("{}# {}\n", text.empty() ? "" : "\n", key.group);
    group = key.group;
    // JSON's numbers, strings and arrays are TOML's too. The parser takes no empty array: it is the default everywhere.
    const Json json = std::visit([](const auto* value) { return Json(*value); }, key.value);
    if (!json.is_array() || !json.empty())
      text += fmt::format("{} = {}\n", key.name, json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return text;
}

}  // namespace lowtide
