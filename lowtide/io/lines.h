#pragma once

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace lowtide {

// A line without its end, which is LF or CRLF, and its number, from 1: what a message about it names.
using TakeLine = std::function<void(std::string_view line, std::size_t number)>;

// The lines of a text. The last may lack its end; after a final end no empty line follows.
void for_each_line(std::string_view text, const TakeLine& take);

// The lines of a file, plain or gzip. It is read in pieces: gigabytes of text take no memory of their own. A
// line of more than 64 MiB is a UserError.
void for_each_line_of(const std::filesystem::path& path, const TakeLine& take);

// The parts between separators; an empty line is one empty field.
std::vector<std::string_view> split_fields(std::string_view line, char separator);

// The number that the whole text is; nothing for what is not one, or too large for the type.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace lowtide
