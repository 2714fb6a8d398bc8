#pragma once

#include <signal.h>
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lowtide {

// A program in a process of its own, with its output added to a log.
//
// It is in a process group of its own: a Ctrl-C at the terminal reaches this process alone, which passes it on by stop(). If
// this process dies, the child is told in the same way.
class Child {
 public:
  // UserError where the log cannot be written.
  Child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
        const std::filesystem::path& log);
  // One that still runs is told to end, by SIGTERM, and waited for.
  ~Child();
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;

  // Its exit code once it has ended, 128 + n where signal n ended it, as shells have it; 127 if it did not
  // start.
  std::optional<int> ended();

  // Once it has ended: the signal that ended it, or 0 where it ended by itself, with whatever code.
  int killed_by() const { return killed_by_; }

  void send(int signal) const;

  // Asks it to save and end, by a signal of which training takes any number for one request: a scheduler may have told every
  // process of a job by itself, and training takes a second SIGTERM or SIGINT as an order to end without saving.
  void stop() const { send(kStopSignal); }

  static constexpr int kStopSignal = SIGUSR1;

 private:
  pid_t pid_ = -1;
  int killed_by_ = 0;
};

}  // namespace lowtide
