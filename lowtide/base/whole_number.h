#pragma once

#include <cstdint>
#include <string>

#include "lowtide/base/json.h"

namespace lowtide {

// What counts steps or items is at most this: a double has every whole number up to here.
constexpr std::int64_t kMostCounted = std::int64_t{1} << 53;

// nlohmann's own conversion makes 1 of 1.5, and anything of 1e30.
bool is_whole_number(const Json& value, std::int64_t least, std::int64_t most);

// The whole number under a key of an object. UserError, which begins with `where`, for anything but a whole number from
// `least` to `most`.
std::int64_t whole_number(const Json& object, const std::string& key, std::int64_t least, std::int64_t most,
                          const std::string& where);

}  // namespace lowtide
