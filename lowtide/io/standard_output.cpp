#include "lowtide/io/standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace lowtide {
namespace {

constexpr const char* kNothing = "/dev/null";

}  // namespace

void occupy_standard_streams() {
  constexpr std::array<int, 3> kFlags{O_RDONLY, O_RDONLY, O_WRONLY};
  for (int number = 0; number < 3; ++number) {
    // The lowest free number is taken: those below are open by now.
    if (::fcntl(number, F_GETFD) < 0)
      static_cast<void>(::open(kNothing, kFlags[static_cast<std::size_t>(number)]));
  }
}

bool is_standard_output(const std::filesystem::path& path) { return path == "-"; }

void write_output(const std::filesystem::path& path, const std::function<void(FileWriter&)>& produce) {
  if (!is_standard_output(path)) return write_atomically(path, produce);
  const std::filesystem::path name = "standard output";
  if (const int error = standard_output_error(); error != 0) throw cannot_write(name, error);
  const FileDescriptor file(::dup(STDOUT_FILENO));
  if (file.number() < 0) throw cannot_write(name, errno);
  FileWriter writer(file, name);
  produce(writer);
}

void write_output(const std::filesystem::path& path, std::string_view text) {
  write_output(path, [&](FileWriter& writer) { writer.write(text); });
}

std::FILE* message_stream(const std::filesystem::path& path) {
  return is_standard_output(path) ? stderr : stdout;
}

void print_or_drop(std::string_view text) {
  const bool taken = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (taken && std::fflush(stdout) == 0) return;
  if (errno != EPIPE && errno != EBADF) return;
  const FileDescriptor nothing(::open(kNothing, O_WRONLY | O_CLOEXEC));
  if (nothing.number() >= 0 && ::dup2(nothing.number(), STDOUT_FILENO) >= 0) std::clearerr(stdout);
}

int standard_output_error() {
  if (std::fflush(stdout) != 0) return errno;
  return std::ferror(stdout) != 0 ? EIO : 0;
}

}  // namespace lowtide
