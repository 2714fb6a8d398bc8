#pragma once

namespace lowtide {

// While one lives, SIGTERM and SIGINT no longer end the process: the training loop asks between two steps and
// saves first. A second signal of the kind ends it at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that came, or 0.
  static int received();
};

}  // namespace lowtide
