#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lowtide/schedule/bits.h"
#include "lowtide/train/metric.h"

namespace lowtide {

struct ProgressLine {
  std::int64_t step = 0;
  double loss = 0;
  std::optional<double> metric;
  Bits bits;
  double rate = 0;
  double items_per_second = 0, seconds_per_step = 0;
  double relative_cost = 0;  // of the run so far, each layer at the bits it ran at
};

// What a person sees of a run: on a terminal one line that is drawn over, no wider than that, elsewhere plain lines. They come
// by time, whatever the length of a step.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // Where it is not `shown`, nothing is printed.
  Progress(std::int64_t total_steps, const Metric& metric, std::string items, bool shown = true);

  // Whether it is time for a line: on a terminal every second, from the first step on; elsewhere every ten.
  bool due(Clock::time_point now = Clock::now()) const { return shown_ && now >= next_; }
  void update(const ProgressLine& line, Clock::time_point now = Clock::now());
  void note(const std::string& text);  // a line that stays
  void finish();

 private:
  std::string text_of(const ProgressLine& line) const;
  std::string bar(std::int64_t step) const;
  void draw(const ProgressLine& line, int columns);

  std::int64_t total_;
  const Metric& metric_;
  std::string items_;
  bool shown_;
  Clock::duration interval_;
  Clock::time_point next_;
  double seconds_per_step_ = 0;  // smoothed, for the time that is left
  bool drawn_ = false;
};

// 3 s, 4 min 10 s, 2 h 5 min
std::string duration_text(double seconds);

}  // namespace lowtide
