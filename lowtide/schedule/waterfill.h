#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "lowtide/schedule/budget.h"
#include "lowtide/schedule/intervals.h"
#include "lowtide/schedule/schedule.h"

namespace lowtide {

// The harm of rounding, for a sensitivity of 1: codes of b bits have 2^b - 1 steps, and harm goes as a step's square. (At 3 bits
// that is 1.31 times 4^-b, at 8 bits 1.01 times.)
inline double rounding_harm(int bits) {
  const double steps = std::exp2(bits) - 1;
  return 1 / (steps * steps);
}

// Who wants bits: a layer over some steps. Rounding to b bits harms by sensitivity·rounding_harm(b) a step and costs
// macs·step_cost(b); `log_worth` is log2(sensitivity / MACs of a step), `macs` are those of all its steps.
struct Demand {
  double log_worth = 0;
  std::int64_t macs = 0;
};

// Which bits are bought at a price λ, that of a bit operation in harm: argmin sensitivity·rounding_harm(b) + λ·macs·step_cost(b).
class WaterLevel {
 public:
  WaterLevel(BitRange range, int gradient);

  // log2 λ decides: as many bits as are worth more than it.
  int bits(double log_worth, double log_price) const;
  // log2 of what raising to this many bits is worth, where log_worth is 0.
  double worth_of_last(int bits) const {
    return -thresholds_[static_cast<std::size_t>(bits - range_.low - 1)];
  }
  // Harm and cost of a MAC at a price.
  double objective(int bits, double log_worth, double log_price) const;
  std::int64_t cost(int bits) const { return step_cost({bits, gradient_}); }

  std::int64_t cost(const std::vector<Demand>& demands, double log_price) const;
  // The lowest price at which all demands together cost no more than the budget, which is enough for their lowest bits.
  double log_price(const std::vector<Demand>& demands, std::int64_t budget) const;

 private:
  BitRange range_;
  int gradient_;
  std::vector<double>
      thresholds_;  // log2 of what a bit more costs by the harm that it takes away, from range.low on
};

// Bits for every layer, a closed loop. After each interval but the last it hears how sensitive the loss is to the rounding of
// each layer; what is left of the budget is then spent on the steps that are left, layers and times alike, where it takes
// away the most harm. Harm as such grows as the learning rate falls, as `matched` has it: the profile of the spending tells
// by how many bits. A layer's bits change for a gain of more than 2 % of its harm and cost. The last interval spends the rest,
// step by step. Layers that are not chosen for have the step's bits, whose cost is nearest to that of the others.
class WaterfillBits final : public Schedule {
 public:
  // `budget`, of a MAC, can be met by the range of bits. Without layers: as planned, for a network that is not known.
  WaterfillBits(const Intervals& intervals, Spending spending, std::int64_t budget,
                const std::vector<LayerSize>& layers);

  // Of an interval that is not decided yet: as planned. Of one that is over, but for the last: not known any more.
  Bits at(std::int64_t step) const override;
  std::vector<std::uint8_t> layers_at(std::int64_t step) const override;
  std::int64_t same_until(std::int64_t step) const override;
  bool is_stateful() const override { return true; }
  bool looks_at(std::int64_t step) const override;
  void observe_layers(const std::vector<double>& sensitivities) override;
  Json state() const override;
  void restore(const Json& state) override;

 private:
  using LayerBits = std::vector<std::uint8_t>;  // of the chosen layers
  struct Loop {
    std::int64_t looks = 0;  // which is the number of the present interval
    // Of the chosen layers, at the highest learning rate: sums that forget, and the sum of their weights.
    std::vector<double> sensitivity;
    double weight = 0;
    std::int64_t left = 0;  // of the budget, at the beginning of the present interval
    LayerBits before, now;  // in the interval before, and in this one unless it is the last
    // Of each step of the last interval: bits of the chosen layers, and those of all others.
    std::vector<LayerBits> last;
    std::vector<std::uint8_t> last_levels;
  };

  void expect_choice() const;
  void decide();
  void decide_last();
  void spend_spare(std::size_t layer, std::int64_t& spare);
  LayerBits planned() const;
  LayerBits wanted() const;
  void make_affordable(LayerBits& bits) const;
  void forget_steps_of(std::int64_t interval);
  void expect_sound() const;
  int level_of(const LayerBits& bits) const;
  std::vector<std::uint8_t> last_levels(const Spending& part) const;
  std::int64_t left_for_chosen(const std::vector<std::uint8_t>& levels) const;
  std::int64_t cost_of(const LayerBits& bits) const;  // of a step
  std::int64_t least_of(std::int64_t steps) const { return steps * macs_ * water_.cost(spending_.range.low); }
  std::int64_t most_of(std::int64_t steps) const { return steps * macs_ * water_.cost(spending_.range.high); }
  double log_worth(std::size_t layer) const;
  std::vector<Demand> demands_left() const;
  const LayerBits* decided_at(std::int64_t step) const;

  Intervals intervals_;
  Spending spending_;
  WaterLevel water_;
  int gradient_;
  std::vector<LayerSize> layers_;
  bool is_network_known_;
  std::vector<std::int64_t> chosen_;        // their MACs
  std::int64_t macs_ = 0, fixed_macs_ = 0;  // of all layers; of those that are not chosen for
  std::int64_t budget_;                     // of all layers
  std::vector<std::uint8_t> plan_;
  // How many of the steps that are left want so many bits, in sixteenths, more than the steps of the highest learning rate.
  std::map<std::int32_t, std::int64_t> steps_left_;
  Loop loop_;
};

}  // namespace lowtide
