#pragma once

#include <signal.h>

#include <array>

namespace lowtide {

// What asks a process to end: a terminal that closes, a person, a scheduler that warns before the time is up.
constexpr std::array kStopSignals{SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

// While one lives, these signals no longer end the process: the training loop asks between two steps and saves first. A
// second SIGTERM or SIGINT ends it at once, unless it comes within half a second: then it is the same request, sent to a process
// and to its group. Of the others several may come for one reason (a shell and the terminal it ran in, every second beyond a
// limit), and more of them do nothing. SIGHUP stays ignored where nohup has it so.
//
// From the first one on, for good, a reader of the output who goes away is no reason to end (SIGPIPE is ignored).
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The first signal that came, or 0.
  static int received();

 private:
  std::array<struct sigaction, kStopSignals.size()> before_{};
};

// For a child between fork and exec: the handlers are the parent's, what is ignored stays so. Async-signal-safe.
void reset_stop_signals();

}  // namespace lowtide
