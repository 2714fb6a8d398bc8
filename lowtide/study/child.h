#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lowtide {

// A program in a process of its own, with its output added to a log.
//
// It is in a process group of its own: a Ctrl-C at the terminal reaches this process alone, which passes it
// on once (training takes a second one as an order to end without saving). If this process dies, the child
// gets a SIGTERM.
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

 private:
  pid_t pid_ = -1;
  int killed_by_ = 0;
};

}  // namespace lowtide
