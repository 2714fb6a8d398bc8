#include "lowtide/train/signals.h"

#include <csignal>
#include <cstddef>
#include <ctime>

namespace lowtide {
namespace {

// GNU's timeout sends its signal twice in a row, to the process and to its group.
constexpr long kSameRequestMilliseconds = 500;

volatile std::sig_atomic_t received_signal = 0;
volatile long received_at = 0;

// Of a clock that only goes forward; may be asked in a handler.
long milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

void remember(int number) {
  if (received_signal == 0) {
    received_at = milliseconds();
    received_signal = number;
    return;
  }
  const bool ends = number == SIGTERM || number == SIGINT;
  if (!ends || milliseconds() - received_at < kSameRequestMilliseconds) return;
  signal(number, SIG_DFL);
  raise(number);  // when the handler has returned
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

StopSignals::StopSignals() {
  received_signal = 0;
  signal(SIGPIPE, SIG_IGN);
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    const int number = kStopSignals[i];
    struct sigaction action {};
    action.sa_flags = SA_RESTART;
    action.sa_handler = number == SIGHUP && is_ignored(SIGHUP) ? SIG_IGN : remember;
    sigaction(number, &action, &before_[i]);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) sigaction(kStopSignals[i], &before_[i], nullptr);
}

int StopSignals::received() { return received_signal; }

void reset_stop_signals() {
  for (const int number : kStopSignals) {
    if (!is_ignored(number)) signal(number, SIG_DFL);
  }
}

}  // namespace lowtide
