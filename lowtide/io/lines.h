#pragma once

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
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

// Something that has lines, and its name in messages about them.
struct LineSource {
  std::string name;
  std::function<void(const TakeLine&)> for_each;
};
LineSource lines_of_file(const std::filesystem::path& path);
LineSource lines_of_text(std::string_view text, const std::string& name);  // the text must outlive it

// The parts between separators; an empty line is one empty field.
std::vector<std::string_view> split_fields(std::string_view line, char separator);

// The fields of a line of CSV (RFC 4180), where one that holds a comma or a quote is in quotes; nothing for
// quotes that do not match. A field with a line end in it is not read.
std::optional<std::vector<std::string>> split_csv(std::string_view line);

// The number that the whole text is; nothing for what is not one, or too large for the type.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace lowtide
