#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/base/error.h"
#include "lowtide/base/json.h"

namespace lowtide {

struct JsonCheck {
  std::string problem;                      // empty where there is none; else what follows "the header …"
  std::vector<std::string> outermost_keys;  // of an object, in their order
};

// Whether `text` is one JSON value, as strict as a file from elsewhere needs: no key twice in an object
// (parsers differ in which one counts), no more than `max_depth` levels (printing and copying recurse), no
// zero bytes (nlohmann takes one for the end). Takes time in proportion to the text, which nlohmann's parser
// with a callback does not.
JsonCheck check_json(std::string_view text, std::size_t max_depth);

// Far beyond what any file of ours holds: a bound on the depth is a bound on the stack.
constexpr std::size_t kMaxJsonDepth = 64;

// The one JSON value that `text` is. All text from a file is parsed by this, never by the library's own parser,
// which takes any depth. What check_json() finds wrong is a UserError, "NAME: PROBLEM; EXPECTED". `AnyJson` is
// Json, or nlohmann::json where an object has so many keys that they must be found by sorting.
template <typename AnyJson = Json>
AnyJson parse_json(std::string_view text, const std::string& name, const std::string& expected,
                   std::size_t max_depth = kMaxJsonDepth) {
  const JsonCheck check = check_json(text, max_depth);
  if (!check.problem.empty()) throw UserError(name + ": " + check.problem + "; " + expected);
  return AnyJson::parse(text);
}

// Text from a file as it can be shown in one line: quoted, escaped, and cut where it is long.
std::string shown(std::string_view text);

}  // namespace lowtide
