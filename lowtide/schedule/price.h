#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lowtide/schedule/budget.h"
#include "lowtide/schedule/intervals.h"
#include "lowtide/schedule/schedule.h"

namespace lowtide {

// How the steps of a `price` schedule are laid out: a probe after each interval but the last two. Costs are those of a MAC
// (step_cost); a probe is two forward passes of a batch, at neighbouring bits.
struct PriceIntervals : Intervals {
  BitRange bits{};
  int gradient = 0;

  std::int64_t probes() const { return count() - 2; }

  std::int64_t cost(int level) const { return step_cost({level, gradient}); }
  // Of the level and the one above; of the two highest at the highest.
  int coarse(int level) const { return level < bits.high ? level : bits.high - 1; }
  std::int64_t probe_cost(int level) const;

  // The budgets that can be met, whatever the probes say.
  std::int64_t least() const { return steps * cost(bits.low) + probes() * probe_cost(bits.low); }
  std::int64_t most() const { return steps * cost(bits.high) + probes() * probe_cost(bits.low); }
};

// Bits at the price of progress, a closed loop. After each interval a probe tells two things of fixed training items: what
// one bit more would take off the loss, and how far the loss fell. A bit is worth its bit operations where they take more
// off the loss as precision than κ times what they take off as progress. Rounding's damage goes as 4^-bits, so one probe
// tells what every number of bits is worth; the bits move by one an interval at most. The plan, the budget spent on the
// bits that a profile wants, holds until the loop knows κ: the price at which the plan's bits are right. From then on κ
// rises where less is left than the plan would have left, and falls where more is. The last interval spends the rest.
class PriceBits final : public Schedule {
 public:
  // A budget between least() and most().
  PriceBits(const PriceIntervals& intervals, Spending spending, std::int64_t budget);

  // Of a step that is not decided yet: as planned.
  Bits at(std::int64_t step) const override;
  std::int64_t same_until(std::int64_t step) const override;
  bool is_stateful() const override { return true; }
  std::optional<Probe> probe_after(std::int64_t step) const override;
  void observe_probe(const ProbeLosses& losses) override;
  // What was heard: all else follows from it.
  Json state() const override;
  void restore(const Json& state) override;

 private:
  struct Ratio {
    double sum = 0, by = 0;
    void add(double value, double unit);
    double value() const { return by > 0 ? sum / by : 0; }
  };
  struct Loop {
    std::vector<ProbeLosses> heard;
    std::vector<std::uint8_t> levels;     // of the intervals that are decided, but for the last
    std::vector<std::uint8_t> last_bits;  // of the last interval's steps, once it is decided
    std::int64_t left = 0;                // of the budget, after what is decided and the probes so far
    // Both in sums that forget. What a probe hears at b bits, damage and noise, goes as 4^-b and 2^-b: so the ratio of sums is
    // also the least-squares fit.
    Ratio damage;                 // of rounding, times 4^bits: what a bit more took off the loss, by 4^-bits
    Ratio progress;               // what training took off it, by its bit operations
    std::optional<double> price;  // κ
  };

  void hear(const ProbeLosses& losses);
  void learn(const ProbeLosses& losses);
  std::optional<double> fall_to(const ProbeLosses& losses) const;
  void decide();
  int planned_level(std::int64_t interval) const;
  int wanted_level(std::int64_t interval) const;
  int affordable_level(std::int64_t interval, int wanted) const;
  double worth(int level) const;
  std::int64_t probes_left() const {
    return intervals_.probes() - static_cast<std::int64_t>(loop_.heard.size());
  }

  PriceIntervals intervals_;
  Spending spending_;
  std::vector<std::uint8_t> plan_;
  std::vector<std::int64_t> planned_from_;  // cost of the plan's steps from an interval on; 0 after the last
  std::int64_t budget_;
  Loop loop_;
};

}  // namespace lowtide
