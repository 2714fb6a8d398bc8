#include "lowtide/schedule/read_value.h"

#include <fmt/format.h>

#include "lowtide/base/error.h"
#include "lowtide/schedule/bits.h"
#include "lowtide/schedule/text.h"

namespace lowtide {

std::int64_t read_integer(std::string_view text) {
  if (const auto value = parse_integer(text)) return *value;
  throw UserError(fmt::format("{} is not a whole number", quoted(text)));
}

double read_real(std::string_view text) {
  if (const auto value = parse_real(text)) return *value;
  throw UserError(fmt::format("{} is not a number", quoted(text)));
}

int read_bits(std::string_view text) {
  const auto value = parse_integer(text);
  if (value && *value >= kFewestBits && *value <= kMostBits) return static_cast<int>(*value);
  throw UserError(fmt::format("{} is not a number of bits; expected {} to {}{}", quoted(text), kFewestBits,
                              kMostBits, value == 0 ? ", or the schedule fp32" : ""));
}

BitRange read_range(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() > 2) throw UserError(fmt::format("{} is not a range of bits such as 3:8", quoted(text)));
  return {read_bits(parts.front()), read_bits(parts.back())};
}

}  // namespace lowtide
