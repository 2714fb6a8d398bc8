#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lowtide {

// The whole text as a number, or nothing: no sign '+', no spaces, no trailing characters, no infinities.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);

std::vector<std::string_view> split_words(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);

// Whether a schedule is a whole line, not a name alone.
bool is_line(std::string_view schedule);

bool equal_ignoring_case(std::string_view a, std::string_view b);

// Text as it may stand on a line for people: on one line, not endless.
std::string shortened(std::string_view text);

// A user's text as it may stand in an error message: shortened, in quotes.
std::string quoted(std::string_view text);

}  // namespace lowtide
