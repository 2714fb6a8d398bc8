#include "lowtide/io/json_check.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

namespace lowtide {
namespace {

using PlainJson = nlohmann::json;

constexpr const char* kNotJson = "is not valid JSON";

// Follows the parser from value to value; a method that returns false ends the parsing.
class Checker : public nlohmann::json_sax<PlainJson> {
 public:
  explicit Checker(std::size_t max_depth) : max_depth_(max_depth) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (!open_values_.back().insert(name).second) {
      result_.problem = fmt::format("has the key {} twice", shown(name));
      return false;
    }
    if (open_values_.size() == 1) result_.outermost_keys.push_back(name);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const PlainJson::exception&) override {
    // nlohmann's message quotes the input, which may be anything and long.
    result_.problem = kNotJson;
    return false;
  }

  JsonCheck take() { return std::move(result_); }

 private:
  bool open() {
    if (open_values_.size() == max_depth_) {
      result_.problem = fmt::format("is nested more than {} levels deep", max_depth_);
      return false;
    }
    open_values_.emplace_back();
    return true;
  }

  bool close() {
    open_values_.pop_back();
    return true;
  }

  std::size_t max_depth_;
  std::vector<std::unordered_set<std::string>> open_values_;  // the keys so far; of an array none
  JsonCheck result_;
};

}  // namespace

JsonCheck check_json(std::string_view text, std::size_t max_depth) {
  if (text.find('\0') != std::string_view::npos) return {kNotJson, {}};
  Checker checker(max_depth);
  PlainJson::sax_parse(text, &checker);
  return checker.take();
}

std::string shown(std::string_view text) {
  constexpr std::size_t kShownBytes = 80;
  const std::string_view cut = text.substr(0, kShownBytes);
  // What the cut leaves of a character of several bytes is replaced.
  std::string quoted = PlainJson(cut).dump(-1, ' ', true, PlainJson::error_handler_t::replace);
  return cut.size() < text.size() ? quoted + "…" : quoted;
}

}  // namespace lowtide
