#include "lowtide/train/recipe_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <set>
#include <string_view>

#include "lowtide/base/error.h"

namespace lowtide {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

void append_utf8(std::string& text, std::uint32_t point) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xc0 | point >> 6), put(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    put(0xe0 | point >> 12), put(0x80 | (point >> 6 & 0x3f)), put(0x80 | (point & 0x3f));
  } else {
    put(0xf0 | point >> 18), put(0x80 | (point >> 12 & 0x3f)), put(0x80 | (point >> 6 & 0x3f)),
        put(0x80 | (point & 0x3f));
  }
}

struct Value {
  std::vector<std::string> items;
  bool is_list = false;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {
    if (text_.substr(0, 3) == "\xef\xbb\xbf") at_ = 3;  // the byte order mark that some editors write
  }

  bool at_end() const { return at_ == text_.size(); }

  // Spaces, line ends and comments.
  void skip_blank() {
    while (!at_end()) {
      if (peek() == '#') {
        skip_comment();
      } else if (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') {
        next();
      } else {
        return;
      }
    }
  }

  std::string key() {
    std::string key;
    while (is_letter(peek()) || is_digit(peek()) || peek() == '-' || peek() == '_') key += next();
    if (peek() == '[' && key.empty()) fail("a recipe has no sections; remove the line");
    if (key.empty()) fail("expected KEY = VALUE");
    skip_space();
    if (peek() != '=') fail(fmt::format("expected {} = VALUE", key));
    next();
    skip_space();
    return key;
  }

  Value value() {
    if (peek() != '[') return {{item()}, false};
    next();
    Value list{{}, true};
    for (skip_blank(); peek() != ']'; skip_blank()) {
      list.items.push_back(item());
      skip_blank();
      if (peek() == ',') {
        next();
      } else if (peek() != ']') {
        fail("expected , or ] in a list");
      }
    }
    next();
    return list;
  }

  // Nothing but a comment may follow a value.
  void end_line() {
    skip_space();
    if (peek() == '#') skip_comment();
    if (peek() == '\r') next();
    if (!at_end() && next() != '\n') fail("expected the end of the line after the value");
  }

  [[noreturn]] void fail(const std::string& what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    throw CLI::ConfigError(fmt::format("line {}: {}", line, what));
  }

 private:
  char peek() const { return at_end() ? '\0' : text_[at_]; }  // a \0 in the file is nowhere expected
  char next() { return text_[at_++]; }

  void skip_space() {
    while (peek() == ' ' || peek() == '\t') next();
  }
  void skip_comment() {
    while (!at_end() && peek() != '\n') next();
  }

  std::string item() {
    if (peek() == '"') return escaped_text();
    if (peek() == '\'') return literal_text();
    return number_or_truth();
  }

  std::string literal_text() {
    next();
    std::string text;
    while (peek() != '\'') {
      if (at_end() || peek() == '\n') fail("text without its closing '");
      text += next();
    }
    next();
    return text;
  }

  std::string escaped_text() {
    next();
    std::string text;
    while (peek() != '"') {
      if (at_end() || peek() == '\n') fail("text without its closing \"");
      const char c = next();
      if (c == '\\') {
        read_escape(text);
      } else {
        text += c;
      }
    }
    next();
    return text;
  }

  void read_escape(std::string& text) {
    constexpr std::string_view kNames = "btnfr\"\\", kMeanings = "\b\t\n\f\r\"\\";
    const char name = at_end() ? '\0' : next();
    if (const auto found = kNames.find(name); found != std::string_view::npos) {
      text += kMeanings[found];
    } else if (name == 'u' || name == 'U') {
      append_utf8(text, code_point(name == 'u' ? 4 : 8));
    } else {
      fail("unknown escape in text; write \\\\ for \\, or put the text in '…'");
    }
  }

  std::uint32_t code_point(int digits) {
    std::uint32_t point = 0;
    for (int i = 0; i < digits; ++i) {
      constexpr std::string_view kHex = "0123456789abcdef";
      const char c = at_end() ? '\0' : next();
      const auto digit = kHex.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
      if (digit == std::string_view::npos) fail(fmt::format("expected {} hexadecimal digits", digits));
      point = point << 4 | static_cast<std::uint32_t>(digit);
    }
    if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) fail("no character has that number");
    return point;
  }

  std::string number_or_truth() {
    std::string word;
    while (is_letter(peek()) || is_digit(peek()) || (peek() != '\0' && std::strchr("+-._:*?/", peek())))
      word += next();
    std::string_view number = word;
    if (!number.empty() && (number[0] == '+' || number[0] == '-')) number.remove_prefix(1);
    if (word == "true" || word == "false" || number == "inf" || number == "nan") return word;
    const bool plain = std::all_of(number.begin(), number.end(), [](char c) {
      return is_digit(c) || std::string_view("+-._eE").find(c) != std::string_view::npos;
    });
    if (number.empty() || !is_digit(number[0]) || !plain) {
      fail(word.empty() ? std::string("expected a value; text needs quotes")
                        : fmt::format("'{}' is not a value; text needs quotes: \"{}\"", word, word));
    }
    word.erase(std::remove(word.begin(), word.end(), '_'), word.end());  // 64_000
    return word;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<CLI::ConfigItem> RecipeFile::from_config(std::istream& input) const {
  const std::string text{std::istreambuf_iterator<char>(input), {}};
  Reader reader(text);
  std::vector<CLI::ConfigItem> entries;
  std::set<const CLI::Option*> seen;
  for (reader.skip_blank(); !reader.at_end(); reader.skip_blank()) {
    const std::string key = reader.key();
    const CLI::Option* option = app_.get_option_no_throw("--" + key);
    if (option == nullptr || !option->get_configurable()) reader.fail(fmt::format("unknown key '{}'", key));
    if (!seen.insert(option).second) reader.fail(fmt::format("{} is given twice", key));
    Value value = reader.value();
    const bool takes_list = option->get_items_expected_max() > 1;
    if (value.is_list && !takes_list) reader.fail(fmt::format("{} is one value, not a list", key));
    reader.end_line();
    if (value.items.empty()) {
      // CLI11 has no way to hand over nothing; where nothing is the default it need not.
      if (option->get_default_str().find_first_not_of("[]") != std::string::npos)
        reader.fail(fmt::format("{} is an empty list; expected one value or more", key));
      continue;
    }
    entries.emplace_back();
    entries.back().name = key;
    entries.back().inputs = std::move(value.items);
  }
  return entries;
}

std::string RecipeFile::to_flag(const CLI::ConfigItem& item) const {
  const std::string& value = item.inputs.at(0);
  if (value != "true" && value != "false")
    throw CLI::ConversionError(fmt::format("{} is {}; expected true or false", item.name, value));
  return value;
}

std::string RecipeFile::to_config(const CLI::App*, bool, bool, std::string) const {
  invariant_failed("to_toml()", __FILE__, __LINE__, "recipes are not written by CLI11");
}

}  // namespace lowtide
