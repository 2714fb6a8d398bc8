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

// What a person sees of a run: on a terminal one line that is drawn over, elsewhere plain lines.
class Progress {
 public:
  Progress(std::int64_t total_steps, const Metric& metric, std::string items);

  void update(const ProgressLine& line);
  void note(const std::string& text);  // a line that stays
  void finish();

 private:
  std::string bar(std::int64_t step) const;

  std::int64_t total_;
  const Metric& metric_;
  std::string items_;
  bool terminal_;
  bool drawn_ = false;
};

// 3 s, 4 min 10 s, 2 h 5 min
std::string duration_text(double seconds);

}  // namespace lowtide
