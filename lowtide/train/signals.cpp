#include "lowtide/train/signals.h"

#include <csignal>
#include <cstddef>

namespace lowtide {
namespace {

volatile std::sig_atomic_t received_signal = 0;

void remember(int signal) {
  if (received_signal == 0) received_signal = signal;
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
    const bool second_ends = number == SIGTERM || number == SIGINT;
    action.sa_flags = SA_RESTART | (second_ends ? static_cast<int>(SA_RESETHAND) : 0);
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
