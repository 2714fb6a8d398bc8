#include "lowtide/io/jsonl.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "lowtide/io/json_check.h"

namespace lowtide {
namespace {

constexpr const char* kExpected = "expected one JSON object a line: mend or remove this line";

Json parse_line(std::string_view line, const std::string& name, std::size_t line_number) {
  const std::string where = fmt::format("{}:{}", name, line_number);
  Json object = parse_json(line, where, kExpected);
  if (!object.is_object())
    throw UserError(fmt::format("{}: holds {}, not an object; {}", where, object.type_name(), kExpected));
  return object;
}

// Calls `take(line with its newline, parsed)` for every whole line; returns what follows the last newline.
template <typename Take>
std::string_view for_each_line(std::string_view text, const std::string& name, Take take) {
  std::size_t line_number = 1;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos;
       end = text.find('\n'), ++line_number) {
    take(text.substr(0, end + 1), parse_line(text.substr(0, end), name, line_number));
    text.remove_prefix(end + 1);
  }
  return text;
}

FileDescriptor open_at_line_end(const std::filesystem::path& path) {
  FileDescriptor file = open_for_writing(path, O_APPEND);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) throw cannot_write(path, errno);
  if (!S_ISREG(status.st_mode)) return file;
  const std::string text = read_text_file(path);
  const std::size_t whole = text.rfind('\n') + 1;  // npos + 1 is 0: no newline, no whole line
  if (whole != text.size() && ::ftruncate(file.number(), static_cast<off_t>(whole)) != 0) {
    throw cannot_write(path, errno);
  }
  return file;
}

}  // namespace

JsonlWriter::JsonlWriter(const std::filesystem::path& path) : path_(path), file_(open_at_line_end(path)) {}

void JsonlWriter::append(const Json& object) {
  LOWTIDE_CHECK(object.is_object(), "a line of JSONL is an object");
  constexpr int kOneLine = -1;
  const std::string line = object.dump(kOneLine, ' ', false, Json::error_handler_t::replace) + '\n';
  append_whole(file_, bytes_of(line), path_);
}

Jsonl parse_jsonl(std::string_view text, const std::string& name) {
  Jsonl result;
  result.unfinished = for_each_line(
      text, name, [&](std::string_view, Json object) { result.lines.push_back(std::move(object)); });
  return result;
}

Jsonl read_jsonl(const std::filesystem::path& path) {
  return parse_jsonl(read_text_file(path), path.string());
}

std::size_t truncate_jsonl(const std::filesystem::path& path, const std::function<bool(const Json&)>& keep) {
  const std::string text = read_text_file(path);
  std::string kept;
  std::size_t dropped = 0;
  for_each_line(text, path.string(), [&](std::string_view line, const Json& object) {
    if (keep(object)) {
      kept += line;
    } else {
      ++dropped;
    }
  });
  if (kept.size() != text.size()) write_atomically(path, kept);
  return dropped;
}

}  // namespace lowtide
