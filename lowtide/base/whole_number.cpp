#include "lowtide/base/whole_number.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"

namespace lowtide {

// Compared as JSON: a number beyond 2^63 is then not taken for a negative one.
bool is_whole_number(const Json& value, std::int64_t least, std::int64_t most) {
  return value.is_number_integer() && value >= Json(least) && value <= Json(most);
}

std::int64_t whole_number(const Json& object, const std::string& key, std::int64_t least, std::int64_t most,
                          const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) throw UserError(fmt::format("{}: {} is missing", where, key));
  if (is_whole_number(*found, least, most)) return found->get<std::int64_t>();
  throw UserError(fmt::format("{}: {} is {}; expected a whole number from {} to {}", where, key,
                              found->dump(), least, most));
}

}  // namespace lowtide
