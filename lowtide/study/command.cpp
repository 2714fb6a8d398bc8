#include "lowtide/study/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "lowtide/base/error.h"
#include "lowtide/io/file.h"

namespace lowtide {
namespace {

// What a program prints lies in memory: a pipe that nobody empties would stop it.
FileDescriptor memory_file(const char* name) {
  FileDescriptor file(memfd_create(name, MFD_CLOEXEC));
  if (file.number() < 0) throw UserError(fmt::format("cannot start a process: {}", std::strerror(errno)));
  return file;
}

std::string content(const FileDescriptor& file) {
  return read_text_file(fmt::format("/proc/self/fd/{}", file.number()));
}

// Its exit code, as shells have it.
int wait_for(pid_t pid, std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (int status = 0;;) {
    const pid_t result = waitpid(pid, &status, WNOHANG);
    if (result == pid) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (std::chrono::steady_clock::now() > end) kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

CommandEnd run_command(const std::vector<std::string>& words, std::chrono::seconds limit) {
  const FileDescriptor out = memory_file("out"), error = memory_file("error");
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.number(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error.number(), STDERR_FILENO);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return {127, "", fmt::format("cannot start {}: {}", words[0], std::strerror(failed))};
  const int code = wait_for(pid, limit);
  return {code, content(out), content(error)};
}

std::string shell_word(const std::string& text) {
  if (!text.empty() &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+") ==
          std::string::npos)
    return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace lowtide
