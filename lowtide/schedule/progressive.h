#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lowtide/schedule/schedule.h"

namespace lowtide {

// Progressive fractional quantisation (FracTrain, Fu et al., NeurIPS 2020, section 3.1): training climbs a
// list of bits, and takes the next step up when the training loss no longer falls at the present one. Losses
// are averaged over windows laid end to end, which needs no history of single losses to be saved.
class ProgressiveBits final : public Schedule {
 public:
  explicit ProgressiveBits(const ScheduleSpec& spec);

  Bits at(std::int64_t step) const override;
  std::int64_t same_until(std::int64_t step) const override;
  bool hears_losses() const override { return true; }
  void observe(std::int64_t step, double loss) override;
  bool is_stateful() const override { return true; }
  Json state() const override;
  void restore(const Json& state) override;

 private:
  bool has_stopped_falling(double mean);

  // All that changes, and so all that is saved.
  struct Progress {
    std::vector<std::int64_t> climbs;  // the first step at levels 1, 2, …
    double sum = 0.0;                  // of the losses in the present window
    std::int64_t count = 0;
    std::optional<double> best;  // the lowest mean of a window at this level
    std::int64_t stale = 0;      // windows in a row that were not clearly better than the best
  };

  std::vector<Bits> levels_;
  Plateau plateau_;
  Progress progress_;
};

}  // namespace lowtide
