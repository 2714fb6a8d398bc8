#pragma once

#include <string>
#include <string_view>

#include "lowtide/base/json.h"

namespace lowtide {

// What the library says of a value that is missing or of another type, without the library's own name for it:
// "[json.exception.type_error.302] type must be number, but is string".
inline std::string json_reason(const Json::exception& error) {
  const std::string_view what = error.what();
  const std::size_t name_end = what.starts_with('[') ? what.find("] ") : what.npos;
  return std::string(name_end == what.npos ? what : what.substr(name_end + 2));
}

}  // namespace lowtide
