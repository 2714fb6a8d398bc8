#include "lowtide/study/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/io/file.h"
#include "lowtide/train/signals.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// Between fork and exec: only what POSIX calls async-signal-safe. Signals are blocked when it begins, so that
// none is taken by the parent's handlers, which the child still has.
[[noreturn]] void become(const char* program, char* const* arguments, int log, pid_t parent) {
  reset_stop_signals();
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, Child::kStopSignal);
  if (getppid() != parent) _exit(128 + Child::kStopSignal);  // it died before it could be watched
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execv(program, arguments);
  const char* reason = strerrordesc_np(errno);
  for (const char* text : {"cannot start ", program, ": ", reason, "\n"}) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  }
  _exit(127);
}

}  // namespace

Child::Child(const fs::path& program, const std::vector<std::string>& arguments, const fs::path& log) {
  const FileDescriptor file = open_for_writing(log, O_APPEND);
  const std::string path = program.string();
  std::vector<char*> argv{const_cast<char*>("lowtide")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  pid_ = fork();
  if (pid_ == 0) become(path.c_str(), argv.data(), file.number(), parent);
  const int error = errno;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid_ < 0) throw UserError(fmt::format("cannot start a process: {}", std::strerror(error)));
}

Child::~Child() {
  if (pid_ <= 0) return;
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

Child::Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), killed_by_(other.killed_by_) {}

Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(killed_by_, other.killed_by_);
  return *this;
}

std::optional<int> Child::ended() {
  LOWTIDE_CHECK(pid_ > 0, "a child that has ended already");
  int status = 0;
  const pid_t result = waitpid(pid_, &status, WNOHANG);
  if (result == 0 || (result < 0 && errno == EINTR)) return std::nullopt;
  LOWTIDE_CHECK(result == pid_, "waiting for a child");
  pid_ = -1;
  killed_by_ = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void Child::send(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

}  // namespace lowtide
