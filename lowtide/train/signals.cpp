#include "lowtide/train/signals.h"

#include <csignal>
#include <initializer_list>

namespace lowtide {
namespace {

volatile std::sig_atomic_t received_signal = 0;

void remember(int signal) { received_signal = signal; }

}  // namespace

StopSignals::StopSignals() {
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);  // the second one takes the default way
  for (const int signal : {SIGTERM, SIGINT}) sigaction(signal, &action, nullptr);
}

StopSignals::~StopSignals() {
  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);
}

int StopSignals::received() { return received_signal; }

}  // namespace lowtide
