#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lowtide/base/error.h"

namespace lowtide {

// Another process holds a lease. No mistake: the same command may succeed later, so the program ends with a code of its own.
class LeaseTaken : public UserError {
 public:
  using UserError::UserError;
};
constexpr int kLeaseTakenCode = 75;  // EX_TEMPFAIL of sysexits.h

// Who holds a lease: a process, told from every other that ever was.
struct LeaseHolder {
  std::string boot;  // the kernel's number of this start of the machine
  std::string
      pid_namespace;  // in which the process number is one: containers of a machine have each their own
  std::int64_t pid = 0;
  std::int64_t started = 0;  // in ticks since the machine started: process numbers are given again
  std::int64_t serial = 0;   // of the leases of one process
  std::string host{};        // this and the next for people
  std::string job{};         // of a scheduler, where there is one

  bool operator==(const LeaseHolder&) const = default;
};

std::string to_text(const LeaseHolder& holder);
// Nothing where the text is not one that to_text() gave.
std::optional<LeaseHolder> parse_lease_holder(std::string_view text);
// "process 812 on node7, job 4711_3"
std::string describe(const LeaseHolder& holder);

struct LeaseOptions {
  std::chrono::milliseconds beat{10'000};    // between two signs of life
  std::chrono::milliseconds expiry{60'000};  // without one, a holder on another machine is taken for dead
  std::string taken = "another process holds it";              // for the message of one who is refused
  std::function<void(const std::string&)> say = [](auto&) {};  // a line for people, where it has to wait
};

// A file that one process holds, on whichever machine, as long as it lives. It needs of a file system only that link() and
// rename() are atomic, which network file systems promise; flock() may be missing there, or hold on one machine alone.
//
// The file names its holder, whose thread sets the file's time every `beat`. Who finds it
// - asks the kernel, where the holder is a process of the same machine: a dead one's lease is taken over at once;
// - else watches the file. A sign of life is that it changes: it is refused. Where it stays the same for `expiry`, it is
//   taken over. No two clocks are compared, so it does not matter whether the machines agree on the time. A look that the file
//   server answered late counts as one interval: the holder could not reach it either.
// A holder that was taken for dead and was only asleep learns it before it writes again: expect_held().
class Lease {
 public:
  // LeaseTaken where another process holds it, which is named; UserError where the file cannot be written.
  explicit Lease(const std::filesystem::path& path, LeaseOptions options = {});
  ~Lease();  // removes the file, if it is still its own
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;

  // LeaseTaken where another process took the lease over, UserError where somebody removed the file.
  void expect_held() const;

 private:
  class Held;
  std::unique_ptr<Held> held_;
};

// What is known of a lease without waiting.
struct LeaseState {
  enum class Holder { kAlive, kDead, kUnseen };  // kUnseen: on another machine

  Holder holder = Holder::kUnseen;
  std::optional<LeaseHolder> who;  // nothing where the file does not tell
  double silent_seconds = 0;       // by this machine's clock; another's may differ

  // Of one on another machine as far as clocks agree.
  bool is_alive(std::chrono::milliseconds expiry = LeaseOptions().expiry) const;
};

// Nothing where nobody holds it.
std::optional<LeaseState> lease_state(const std::filesystem::path& path);

}  // namespace lowtide
