#pragma once

#include <string>
#include <string_view>
#include <vector>

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

// Text from a file as it can be shown in one line: quoted, escaped, and cut where it is long.
std::string shown(std::string_view text);

}  // namespace lowtide
