#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/base/json.h"
#include "lowtide/io/file.h"

namespace lowtide {

// One JSON object a line (jsonlines.org). A line is whole when its newline is there; a process that is killed
// leaves at most one that is not, the last. JSON has no infinities and no NaN: such numbers are written as
// null. Text that is not UTF-8 is written with U+FFFD in the place of what is not.
class JsonlWriter {
 public:
  // Creates the file, or continues it: an unfinished last line is cut off first.
  explicit JsonlWriter(const std::filesystem::path& path);

  // Hands the line to the system before it returns: from then on a SIGKILL does not lose it (a loss of power
  // may). On an error the file ends with the last whole line.
  void append(const Json& object);

  // Returns when the disk has all lines.
  void sync() { sync_file(file_, path_); }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

struct Jsonl {
  std::vector<Json> lines;
  std::string unfinished;  // what follows the last newline: empty unless a writer was cut off
};

// A whole line that is not a JSON object, or has a key twice, is a UserError with the line's number, and
// `name` for the file.
Jsonl parse_jsonl(std::string_view text, const std::string& name);
Jsonl read_jsonl(const std::filesystem::path& path);

// Keeps the whole lines for which `keep` holds, byte for byte, and drops the others and an unfinished last
// line; the file is replaced atomically, and left alone when nothing is to be dropped. Returns the number of
// whole lines dropped. A JsonlWriter that has the file open would go on writing to the old one: truncate
// first, then open.
std::size_t truncate_jsonl(const std::filesystem::path& path, const std::function<bool(const Json&)>& keep);

}  // namespace lowtide
