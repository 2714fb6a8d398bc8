#include "lowtide/io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

namespace lowtide {
namespace {

namespace fs = std::filesystem;

std::string reason(int error_number) { return std::system_category().message(error_number); }

// A signal may interrupt a system call before it has done anything: then it is made again.
template <typename Call>
auto retry_interrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// A file beside its destination, since a rename is atomic only within one file system. It is removed unless
// it has been renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& destination) : destination_(destination) {
    static std::atomic<unsigned> counter{0};
    // A name has at most 255 bytes: 200 of the destination's own leave room for the rest.
    const std::string stem = destination.filename().string().substr(0, 200);
    // A killed process of the same number may have left a file: O_EXCL refuses it, and the next name is
    // tried.
    do {
      path_ = folder_of(destination) / fmt::format(".{}.{}-{}.tmp", stem, ::getpid(), counter++);
      file_ = FileDescriptor(retry_interrupted(
          [&] { return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); }));
    } while (file_.number() < 0 && errno == EEXIST);
    if (file_.number() < 0) throw cannot_write(destination, errno);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (file_.number() >= 0 && !renamed_) ::unlink(path_.c_str());
  }

  const FileDescriptor& file() const { return file_; }

  // Best effort: only root may give a file away, and some file systems know neither owners nor permissions.
  void look_like(const struct stat& old) const {
    static_cast<void>(!::fchown(file_.number(), old.st_uid, old.st_gid));
    static_cast<void>(!::fchmod(file_.number(), old.st_mode & 07777));
  }

  void rename_to_destination() {
    if (::rename(path_.c_str(), destination_.c_str()) != 0) throw cannot_write(destination_, errno);
    renamed_ = true;
  }

 private:
  const fs::path& destination_;
  fs::path path_;
  FileDescriptor file_;
  bool renamed_ = false;
};

// The rename itself reaches the disk with the folder. File systems that cannot sync a folder say EINVAL.
void sync_folder(const fs::path& folder, const fs::path& path) {
  const FileDescriptor file(
      retry_interrupted([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (file.number() < 0) {
    if (errno == EACCES) return;  // a folder may be writable but not readable
    throw cannot_write(path, errno);
  }
  const int result = retry_interrupted([&] { return ::fsync(file.number()); });
  if (result != 0 && errno != EINVAL) throw cannot_write(path, errno);
}

// Where a path leads after every link at its end, also where nothing is there yet.
fs::path link_target(fs::path path) {
  constexpr int kMostLinks = 40;  // Linux's own bound
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    const fs::path target = fs::read_symlink(path, error);
    if (error) return path;  // no link, or nothing at all: whoever writes there finds out
    path = folder_of(path) / target;
  }
  throw cannot_write(path, ELOOP);
}

void replace_file(const fs::path& path, const struct stat* old,
                  const std::function<void(FileWriter&)>& produce) {
  TemporaryFile temporary(path);
  if (old != nullptr) temporary.look_like(*old);
  FileWriter writer(temporary.file(), path);
  produce(writer);
  sync_file(temporary.file(), path);
  temporary.rename_to_destination();
  sync_folder(folder_of(path), path);
}

// A pipe waits here for its reader.
void write_through(const fs::path& path, const std::function<void(FileWriter&)>& produce) {
  const FileDescriptor file(retry_interrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC); }));
  if (file.number() < 0) throw cannot_write(path, errno);
  FileWriter writer(file, path);
  produce(writer);
}

UserError not_a_file(const fs::path& path, const char* what) {
  return UserError(fmt::format("cannot write {}: it is {}; choose another name", path.string(), what));
}

// So that a file is read in one piece; 0 for those that do not tell (/proc).
std::size_t size_hint(const FileDescriptor& file) {
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) return 0;
  return static_cast<std::size_t>(status.st_size);
}

UserError too_large(const fs::path& path, std::size_t max_bytes) {
  return UserError(
      fmt::format("cannot read {}: it holds more than the {} bytes expected at most; is it the right file?",
                  path.string(), max_bytes));
}

template <typename Buffer>
Buffer read_whole(const fs::path& path, std::size_t max_bytes) {
  constexpr std::size_t kChunk = 65536;
  const FileDescriptor file = open_for_reading(path);
  const std::size_t hint = size_hint(file);
  if (hint > max_bytes) throw too_large(path, max_bytes);
  Buffer buffer;
  std::size_t used = 0;
  // One byte past the size in the hint lets a single read also see the end.
  buffer.resize(hint + 1);
  while (true) {
    if (used == buffer.size()) buffer.resize(std::max(kChunk, 2 * used));
    const ssize_t got =
        retry_interrupted([&] { return ::read(file.number(), buffer.data() + used, buffer.size() - used); });
    if (got < 0) throw cannot_read(path, errno);
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
    if (used > max_bytes) throw too_large(path, max_bytes);
  }
  buffer.resize(used);
  return buffer;
}

}  // namespace

UserError cannot_read(const fs::path& path, int error_number) {
  const std::string what = fmt::format("cannot read {}: ", path.string());
  switch (error_number) {
    case ENOENT:
      return UserError(what + "there is no such file; check the path");
    case EISDIR:
      return UserError(what + "it is a folder, and a file was expected");
    case ENOTDIR:
      return UserError(what + "a part of the path is a file, not a folder; check the path");
    case EACCES:
      return UserError(what + "permission denied; make it readable for this user");
    default:
      return UserError(what + reason(error_number));
  }
}

UserError cannot_write(const fs::path& path, int error_number) {
  const std::string what = fmt::format("cannot write {}: ", path.string());
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return UserError(what + reason(error_number) + "; free some space or write to another disk");
    case ENOENT:
      return UserError(what + "its folder does not exist; create it first");
    case EISDIR:
      return UserError(what + "a folder of that name is in the way; choose another name");
    case ENOTDIR:
      return UserError(what + "a part of the path is a file, not a folder; check the path");
    case EACCES:
    case EPERM:
    case EROFS:
      return UserError(what + reason(error_number) + "; choose a folder that this user can write to");
    default:
      return UserError(what + reason(error_number));
  }
}

bool file_exists(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return fs::is_symlink(fs::symlink_status(path, error));
  if (error) throw cannot_read(path, error.value());
  return true;
}

std::vector<fs::path> folder_entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  if (error) throw cannot_read(folder, error.value());
  return entries;
}

void remove_file(const fs::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    throw UserError(fmt::format("cannot remove {}: {}", path.string(), reason(errno)));
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) ::close(number_);
}

FileDescriptor open_for_reading(const fs::path& path) {
  // A pipe or a device might never end. Without O_NONBLOCK a named pipe would be waited for until somebody writes to it.
  FileDescriptor file(
      retry_interrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) throw cannot_read(path, errno);
  if (S_ISDIR(status.st_mode)) throw cannot_read(path, EISDIR);
  if (!S_ISREG(status.st_mode))
    throw UserError(fmt::format("cannot read {}: it is not a regular file", path.string()));
  return file;
}

FileDescriptor open_for_writing(const fs::path& path, int flags) {
  FileDescriptor file(
      retry_interrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666); }));
  if (file.number() < 0) throw cannot_write(path, errno);
  return file;
}

void write_all(const FileDescriptor& file, ByteSpan bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written =
        retry_interrupted([&] { return ::write(file.number(), bytes.data(), bytes.size()); });
    if (written < 0) throw cannot_write(path, errno);
    if (written == 0) throw cannot_write(path, EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void append_whole(const FileDescriptor& file, ByteSpan bytes, const fs::path& path) {
  const off_t end = ::lseek(file.number(), 0, SEEK_END);
  try {
    write_all(file, bytes, path);
  } catch (const UserError&) {
    // Best effort: what is not a regular file cannot be cut, and the first error is the one to report.
    if (end >= 0) static_cast<void>(!::ftruncate(file.number(), end));
    throw;
  }
}

void sync_file(const FileDescriptor& file, const fs::path& path) {
  // Network file systems may find only now that the disk is full.
  if (retry_interrupted([&] { return ::fsync(file.number()); }) != 0) throw cannot_write(path, errno);
}

std::vector<std::byte> read_file(const fs::path& path, std::size_t max_bytes) {
  return read_whole<std::vector<std::byte>>(path, max_bytes);
}

std::string read_text_file(const fs::path& path, std::size_t max_bytes) {
  return read_whole<std::string>(path, max_bytes);
}

void write_atomically(const fs::path& path, const std::function<void(FileWriter&)>& produce) {
  struct stat old {};
  if (::stat(path.c_str(), &old) != 0) {
    if (errno != ENOENT) throw cannot_write(path, errno);
    return replace_file(link_target(path), nullptr, produce);
  }
  switch (old.st_mode & S_IFMT) {
    case S_IFREG:
      return replace_file(link_target(path), &old, produce);
    case S_IFDIR:
      throw cannot_write(path, EISDIR);
    case S_IFBLK:
      throw not_a_file(path, "a disk, all of which would be lost");
    case S_IFSOCK:
      throw not_a_file(path, "a socket");
    default:
      return write_through(path, produce);
  }
}

void write_atomically(const fs::path& path, std::span<const ByteSpan> pieces) {
  write_atomically(path, [&](FileWriter& writer) {
    for (const ByteSpan piece : pieces) writer.write(piece);
  });
}

void write_atomically(const fs::path& path, std::string_view text) {
  write_atomically(path, [&](FileWriter& writer) { writer.write(text); });
}

}  // namespace lowtide
