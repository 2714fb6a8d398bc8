#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/base/error.h"

namespace lowtide {

using ByteSpan = std::span<const std::byte>;

inline ByteSpan bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view text_of(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// One line for people about a system call that failed: the path, the reason, what to do.
UserError cannot_read(const std::filesystem::path& path, int error_number);
UserError cannot_write(const std::filesystem::path& path, int error_number);

// Whether there is something of that name; a link that leads nowhere counts. UserError where that cannot be told: a folder
// on the way that cannot be searched, a loop of links, a disk that fails.
bool file_exists(const std::filesystem::path& path);

// What is in a folder, in no order. UserError where it cannot be listed, to the end.
std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder);

// UserError where it cannot be removed; a file that is gone already is no mistake.
void remove_file(const std::filesystem::path& path);

// An open file, closed when it goes out of scope.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int number() const { return number_; }

 private:
  int number_ = -1;
};

FileDescriptor open_for_reading(const std::filesystem::path& path);

// Creates the file where there is none; `flags` are added to O_WRONLY | O_CREAT (O_APPEND, O_EXCL …).
FileDescriptor open_for_writing(const std::filesystem::path& path, int flags);

// Everything or a UserError: the system may take a write in parts, and an interrupted one is tried again. The
// path is for the message. On an error some of the bytes may have been written.
void write_all(const FileDescriptor& file, ByteSpan bytes, const std::filesystem::path& path);

// Adds to the end of a file opened with O_APPEND all of the bytes or, with a UserError, none: what a full
// disk took of them is cut off again, so that the next record does not follow half of this one. For a file
// with one writer.
void append_whole(const FileDescriptor& file, ByteSpan bytes, const std::filesystem::path& path);

// Returns when the disk has what was written.
void sync_file(const FileDescriptor& file, const std::filesystem::path& path);

// The whole file. One that holds more than `max_bytes` is a UserError, found without reading the rest.
std::vector<std::byte> read_file(const std::filesystem::path& path,
                                 std::size_t max_bytes = std::numeric_limits<std::size_t>::max());
std::string read_text_file(const std::filesystem::path& path,
                           std::size_t max_bytes = std::numeric_limits<std::size_t>::max());

// What `write_atomically` lends to the function that produces the content: pieces are written as they come,
// so that a checkpoint of gigabytes is never joined in memory.
class FileWriter {
 public:
  FileWriter(const FileDescriptor& file, const std::filesystem::path& path) : file_(file), path_(path) {}

  void write(ByteSpan bytes) {
    write_all(file_, bytes, path_);
    written_ += bytes.size();
  }
  void write(std::string_view text) { write(bytes_of(text)); }

  std::uintmax_t written() const { return written_; }

 private:
  const FileDescriptor& file_;
  const std::filesystem::path& path_;
  std::uintmax_t written_ = 0;
};

// The file at `path` is at every moment, for every reader and after a loss of power, the old one or the whole
// new one: the content goes to a temporary file in the same folder, is synced and renamed over the path. When
// anything fails (a full disk, a folder that cannot be written, an exception from `produce`) the temporary is
// removed and the old file stays as it was. The one exception: if syncing the folder fails after the rename,
// the new file is in place but may not survive a loss of power; that too is reported. Of several writers to
// one path the last to finish wins.
//
// A file that is there keeps its permissions and its owner, as far as this user may give them. A symbolic link stays, and
// what it leads to is written. What is not a file stays what it is: a pipe or a character device is written through, in
// order, and a disk or a socket is refused.
void write_atomically(const std::filesystem::path& path, const std::function<void(FileWriter&)>& produce);
void write_atomically(const std::filesystem::path& path, std::span<const ByteSpan> pieces);
void write_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace lowtide
