#include "lowtide/schedule/waterfill.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "lowtide/base/error.h"
#include "lowtide/base/json_reason.h"

namespace lowtide {
namespace {

constexpr double kGain = 0.02;    // for less a layer keeps its bits
constexpr double kMemory = 0.75;  // as price's: the last four looks have two thirds of the weight
constexpr std::int64_t kMostBudget = std::int64_t{1} << 62;

// Steps that want nearly the same are told apart by a sixteenth of a bit.
constexpr int kGroupBits = 4;
std::int32_t group_of(FixedBits wanted) { return wanted >> (kFixedPoint - kGroupBits); }
double bits_of_group(std::int32_t group) { return std::ldexp(group + 0.5, -kGroupBits); }

bool is_sound(const std::vector<double>& sensitivities) {
  const auto is_known = [](double s) { return std::isfinite(s) && s >= 0; };
  return std::all_of(sensitivities.begin(), sensitivities.end(), is_known) &&
         std::any_of(sensitivities.begin(), sensitivities.end(), [](double s) { return s > 0; });
}

Spending part_of(const Spending& spending, std::int64_t begin, std::int64_t end) {
  return {.wanted = {spending.wanted.begin() + begin, spending.wanted.begin() + end},
          .gradient = {spending.gradient.begin() + begin, spending.gradient.begin() + end},
          .range = spending.range};
}

}  // namespace

WaterLevel::WaterLevel(BitRange range, int gradient) : range_(range), gradient_(gradient) {
  for (int bits = range.low; bits < range.high; ++bits)
    thresholds_.push_back(std::log2(static_cast<double>(cost(bits + 1) - cost(bits)) /
                                    (rounding_harm(bits) - rounding_harm(bits + 1))));
}

int WaterLevel::bits(double log_worth, double log_price) const {
  int bits = range_.low;
  for (const double threshold : thresholds_) {
    if (!(log_worth - log_price > threshold)) break;
    ++bits;
  }
  return bits;
}

double WaterLevel::objective(int bits, double log_worth, double log_price) const {
  return std::exp2(log_worth) * rounding_harm(bits) + std::exp2(log_price) * static_cast<double>(cost(bits));
}

std::int64_t WaterLevel::cost(const std::vector<Demand>& demands, double log_price) const {
  std::int64_t sum = 0;
  for (const Demand& demand : demands) sum += demand.macs * cost(bits(demand.log_worth, log_price));
  return sum;
}

double WaterLevel::log_price(const std::vector<Demand>& demands, std::int64_t budget) const {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const Demand& demand : demands) {
    if (!std::isfinite(demand.log_worth)) continue;  // of no worth at any price
    least = std::min(least, demand.log_worth);
    most = std::max(most, demand.log_worth);
  }
  if (least > most) return 0;
  double low = least - thresholds_.back() - 1, high = most - thresholds_.front();  // all they can; nothing
  if (cost(demands, low) <= budget) return low;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (cost(demands, middle) <= budget ? high : low) = middle;
  }
  return high;
}

WaterfillBits::WaterfillBits(const Intervals& intervals, Spending spending, std::int64_t budget,
                             const std::vector<LayerSize>& layers)
    : intervals_(intervals),
      spending_(std::move(spending)),
      water_(spending_.range, spending_.gradient.front()),
      gradient_(spending_.gradient.front()),
      layers_(layers.empty() ? std::vector<LayerSize>{{1, true}} : layers),
      is_network_known_(!layers.empty()) {
  for (LayerSize& layer : layers_) {
    layer.is_chosen = layer.is_chosen && layer.macs > 0;  // bits of one that never multiplies cost nothing
    if (layer.is_chosen) chosen_.push_back(layer.macs);
    macs_ += layer.macs;
    fixed_macs_ += layer.is_chosen ? 0 : layer.macs;
  }
  expect_choice();
  if (spending_.cost_at(spending_.range.high) > kMostBudget / macs_)
    throw UserError(
        fmt::format("{} MACs over {} steps are more than waterfill can count; expected fewer steps", macs_,
                    intervals_.steps));
  budget_ = budget * macs_;
  plan_ = spend(spending_, budget);
  for (const FixedBits wanted : spending_.wanted) ++steps_left_[group_of(wanted)];
  loop_.sensitivity.resize(chosen_.size());
  loop_.left = budget_;
  decide();
  loop_.before = loop_.now;
}

// The last interval meets the budget where the chosen layers can make up for a bit more of all others in one of its steps,
// at most for the dearest one.
void WaterfillBits::expect_choice() const {
  if (chosen_.empty())
    throw UserError(
        "waterfill chooses bits for layers that have weights, and this network has none without a rule of "
        "its "
        "own; expected another schedule");
  const BitRange range = spending_.range;
  const double raise = static_cast<double>(fixed_macs_) *
                       static_cast<double>(water_.cost(range.high) - water_.cost(range.high - 1));
  const double room = static_cast<double>(macs_ - fixed_macs_) *
                      static_cast<double>(water_.cost(range.high) - water_.cost(range.low));
  const double fewest = std::ceil(raise / room);
  if (fewest <= static_cast<double>(intervals_.length(intervals_.last()))) return;
  throw UserError(fmt::format(
      "layers that waterfill does not choose for have {:.2f} % of the MACs, and the others cannot "
      "make up for a bit of theirs in a last interval of {} steps; expected every={:.0f} or more, "
      "or fewer layers with rules",
      100 * static_cast<double>(fixed_macs_) / static_cast<double>(macs_),
      intervals_.length(intervals_.last()), fewest));
}

Bits WaterfillBits::at(std::int64_t step) const {
  step = std::clamp<std::int64_t>(step, 0, intervals_.steps - 1);
  const std::int64_t last = intervals_.last();
  if (intervals_.of_step(step) == last && !loop_.last.empty())
    return {loop_.last_levels[static_cast<std::size_t>(step - intervals_.begin(last))], gradient_};
  const LayerBits* decided = is_network_known_ ? decided_at(step) : nullptr;
  return {decided ? level_of(*decided) : plan_[static_cast<std::size_t>(step)], gradient_};
}

const WaterfillBits::LayerBits* WaterfillBits::decided_at(std::int64_t step) const {
  const std::int64_t interval = intervals_.of_step(step);
  if (interval > loop_.looks) return nullptr;
  if (interval < loop_.looks) return &loop_.before;
  return loop_.last.empty() ? &loop_.now
                            : &loop_.last[static_cast<std::size_t>(step - intervals_.begin(interval))];
}

std::vector<std::uint8_t> WaterfillBits::layers_at(std::int64_t step) const {
  step = std::clamp<std::int64_t>(step, 0, intervals_.steps - 1);
  const LayerBits* decided = is_network_known_ ? decided_at(step) : nullptr;
  if (decided == nullptr) return {};
  const auto level = static_cast<std::uint8_t>(at(step).forward);
  std::vector<std::uint8_t> bits;
  std::size_t next = 0;
  for (const LayerSize& layer : layers_) bits.push_back(layer.is_chosen ? (*decided)[next++] : level);
  return bits;
}

std::int64_t WaterfillBits::same_until(std::int64_t step) const {
  std::int64_t end = step + 1;
  while (end < intervals_.steps && at(end) == at(step) && layers_at(end) == layers_at(step)) ++end;
  return end < intervals_.steps ? end : std::numeric_limits<std::int64_t>::max();
}

bool WaterfillBits::looks_at(std::int64_t step) const {
  return loop_.looks < intervals_.last() && step + 1 == intervals_.end(loop_.looks);
}

void WaterfillBits::observe_layers(const std::vector<double>& sensitivities) {
  LOWTIDE_CHECK(loop_.looks < intervals_.last() && sensitivities.size() == layers_.size(),
                "a look that was not asked for");
  std::vector<double> heard;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].is_chosen) heard.push_back(sensitivities[i]);
  }
  // By the rate of the step it was heard in, to what it would be at the highest: rounding's harm goes as 1 / rate.
  const double wanted =
      std::ldexp(spending_.wanted[static_cast<std::size_t>(intervals_.end(loop_.looks) - 1)], -kFixedPoint);
  for (double& of_layer : heard) of_layer *= std::exp2(-2 * wanted);
  if (is_sound(heard)) {  // else it says nothing
    for (std::size_t i = 0; i < heard.size(); ++i)
      loop_.sensitivity[i] = kMemory * loop_.sensitivity[i] + heard[i];
    loop_.weight = kMemory * loop_.weight + 1;
  }
  loop_.left -= intervals_.length(loop_.looks) * cost_of(loop_.now);
  forget_steps_of(loop_.looks);
  ++loop_.looks;
  loop_.before = loop_.now;
  decide();
}

void WaterfillBits::forget_steps_of(std::int64_t interval) {
  for (std::int64_t step = intervals_.begin(interval); step < intervals_.end(interval); ++step) {
    const auto group = steps_left_.find(group_of(spending_.wanted[static_cast<std::size_t>(step)]));
    if (--group->second == 0) steps_left_.erase(group);
  }
}

void WaterfillBits::decide() {
  if (loop_.looks == intervals_.last()) return decide_last();
  loop_.now = loop_.weight > 0 ? wanted() : planned();
  make_affordable(loop_.now);
}

// All layers alike, at the bits whose cost is nearest to the plan's.
WaterfillBits::LayerBits WaterfillBits::planned() const {
  const std::int64_t begin = intervals_.begin(loop_.looks), end = intervals_.end(loop_.looks);
  std::int64_t cost = 0;
  for (std::int64_t step = begin; step < end; ++step)
    cost += water_.cost(plan_[static_cast<std::size_t>(step)]);
  int level = spending_.range.low;
  while (level < spending_.range.high &&
         (end - begin) * (water_.cost(level) + water_.cost(level + 1)) <= 2 * cost)
    ++level;
  return LayerBits(chosen_.size(), static_cast<std::uint8_t>(level));
}

// At the highest learning rate. Nothing is known before the first look: all layers are alike.
double WaterfillBits::log_worth(std::size_t layer) const {
  if (loop_.weight <= 0) return 0;
  return std::log2(loop_.sensitivity[layer] / loop_.weight / static_cast<double>(chosen_[layer]));
}

std::vector<Demand> WaterfillBits::demands_left() const {
  std::vector<Demand> demands;
  for (std::size_t i = 0; i < chosen_.size(); ++i) {
    const double worth = log_worth(i);
    for (const auto& [group, steps] : steps_left_)
      demands.push_back({worth + 2 * bits_of_group(group), chosen_[i] * steps});
  }
  return demands;
}

WaterfillBits::LayerBits WaterfillBits::wanted() const {
  // The layers that are not chosen for cost as much a MAC as the others.
  const double share = static_cast<double>(macs_ - fixed_macs_) / static_cast<double>(macs_);
  const auto budget = static_cast<std::int64_t>(static_cast<double>(loop_.left) * share);
  const double price = water_.log_price(demands_left(), budget);
  const std::int64_t begin = intervals_.begin(loop_.looks), end = intervals_.end(loop_.looks);
  const std::int64_t sum =
      std::accumulate(spending_.wanted.begin() + begin, spending_.wanted.begin() + end, std::int64_t{0});
  const double mean = std::ldexp(static_cast<double>(sum) / static_cast<double>(end - begin), -kFixedPoint);
  LayerBits bits = loop_.before;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const double worth = log_worth(i) + 2 * mean;
    const int best = water_.bits(worth, price);
    const double gain = 1 - water_.objective(best, worth, price) / water_.objective(bits[i], worth, price);
    if (gain > kGain) bits[i] = static_cast<std::uint8_t>(best);
  }
  return bits;
}

// So that what is left can be spent on the later steps, neither too little nor too much. There are such bits: those steps are
// as many as the interval's, or more.
void WaterfillBits::make_affordable(LayerBits& bits) const {
  const std::int64_t length = intervals_.length(loop_.looks),
                     later = intervals_.steps - intervals_.end(loop_.looks);
  const auto left_after = [&] { return loop_.left - length * cost_of(bits); };
  // The layer whose bit is worth the least, or most, among those that can be changed.
  const auto change = [&](int by, int limit) {
    std::size_t found = bits.size();
    double best = 0;
    for (std::size_t i = 0; i < bits.size(); ++i) {
      if (bits[i] == limit) continue;
      const double worth = by * (log_worth(i) + water_.worth_of_last(by > 0 ? bits[i] + 1 : bits[i]));
      if (found == bits.size() || worth > best) {
        found = i;
        best = worth;
      }
    }
    LOWTIDE_CHECK(found < bits.size(), "a budget that no bits of an interval can keep");
    bits[found] = static_cast<std::uint8_t>(bits[found] + by);
  };
  while (left_after() < least_of(later)) change(-1, spending_.range.low);
  while (left_after() > most_of(later)) change(1, spending_.range.high);
}

// Step by step: each layer, from the largest on, spends its share by error diffusion, and what it leaves is for the next.
void WaterfillBits::decide_last() {
  const std::int64_t begin = intervals_.begin(loop_.looks), length = intervals_.length(loop_.looks);
  const Spending part = part_of(spending_, begin, begin + length);
  loop_.last_levels = last_levels(part);
  std::int64_t spare = left_for_chosen(loop_.last_levels);
  std::vector<std::int64_t> shares(chosen_.size());  // of a MAC
  const double price = water_.log_price(demands_left(), spare);
  for (std::size_t i = 0; i < chosen_.size(); ++i) {
    for (const auto& [group, steps] : steps_left_)
      shares[i] += steps * water_.cost(water_.bits(log_worth(i) + 2 * bits_of_group(group), price));
    spare -= chosen_[i] * shares[i];
  }
  std::vector<std::size_t> order(chosen_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return chosen_[a] > chosen_[b]; });
  loop_.now.clear();
  loop_.last.assign(static_cast<std::size_t>(length), LayerBits(chosen_.size()));
  for (const std::size_t i : order) {
    spare += chosen_[i] * shares[i];
    const std::int64_t budget = chosen_[i] > 0 ? spare / chosen_[i] : 0;
    const std::vector<std::uint8_t> bits =
        spend(part, std::clamp(budget, part.cost_at(part.range.low), part.cost_at(part.range.high)));
    for (std::size_t step = 0; step < bits.size(); ++step) {
      loop_.last[step][i] = bits[step];
      spare -= chosen_[i] * water_.cost(bits[step]);
    }
  }
  for (const std::size_t i : order) spend_spare(i, spare);
}

// Where the others left more than the smallest layers had room for: the last steps first.
void WaterfillBits::spend_spare(std::size_t layer, std::int64_t& spare) {
  for (auto step = loop_.last.rbegin(); step != loop_.last.rend(); ++step) {
    std::uint8_t& bits = (*step)[layer];
    const auto raise = [&] { return chosen_[layer] * (water_.cost(bits + 1) - water_.cost(bits)); };
    for (; bits < spending_.range.high && raise() <= spare; ++bits) spare -= raise();
  }
}

// Of the layers that are not chosen for, in each step of the last interval: a MAC of theirs has as much as any has left, and
// more where the chosen ones cannot spend the rest, the last steps first.
std::vector<std::uint8_t> WaterfillBits::last_levels(const Spending& part) const {
  std::vector<std::uint8_t> levels = spend(part, loop_.left / macs_);
  const std::int64_t most = (macs_ - fixed_macs_) * part.cost_at(part.range.high);
  std::int64_t left = left_for_chosen(levels);
  for (auto level = levels.rbegin(); level != levels.rend() && left > most; ++level) {
    for (; *level < part.range.high && left > most; ++*level)
      left -= fixed_macs_ * (water_.cost(*level + 1) - water_.cost(*level));
  }
  return levels;
}

// Of the budget, in the last interval.
std::int64_t WaterfillBits::left_for_chosen(const std::vector<std::uint8_t>& levels) const {
  std::int64_t left = loop_.left;
  for (const int level : levels) left -= fixed_macs_ * water_.cost(level);
  return left;
}

std::int64_t WaterfillBits::cost_of(const LayerBits& bits) const {
  std::int64_t sum = fixed_macs_ > 0 ? fixed_macs_ * water_.cost(level_of(bits)) : 0;
  for (std::size_t i = 0; i < bits.size(); ++i) sum += chosen_[i] * water_.cost(bits[i]);
  return sum;
}

// Whose cost is nearest to that of the chosen layers.
int WaterfillBits::level_of(const LayerBits& bits) const {
  std::int64_t cost = 0;
  for (std::size_t i = 0; i < bits.size(); ++i) cost += chosen_[i] * water_.cost(bits[i]);
  const std::int64_t macs = macs_ - fixed_macs_;
  int level = spending_.range.low;
  while (level < spending_.range.high && macs * (water_.cost(level) + water_.cost(level + 1)) <= 2 * cost)
    ++level;
  return level;
}

Json WaterfillBits::state() const {
  return {{"looks", loop_.looks},
          {"sensitivity", loop_.sensitivity},
          {"weight", loop_.weight},
          {"left", loop_.left},
          {"bits", loop_.now}};
}

void WaterfillBits::restore(const Json& state) {
  Loop loop;
  try {
    loop.looks = state.at("looks").get<std::int64_t>();
    loop.sensitivity = state.at("sensitivity").get<std::vector<double>>();
    loop.weight = state.at("weight").get<double>();
    loop.left = state.at("left").get<std::int64_t>();
    loop.now = state.at("bits").get<LayerBits>();
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("state of a waterfill schedule: damaged ({})", json_reason(error)));
  }
  loop.before = loop.now;
  loop_ = std::move(loop);
  expect_sound();
  steps_left_.clear();
  for (std::int64_t step = intervals_.begin(loop_.looks); step < intervals_.steps; ++step)
    ++steps_left_[group_of(spending_.wanted[static_cast<std::size_t>(step)])];
  if (loop_.looks == intervals_.last()) decide_last();
  if (this->state() != state)
    throw UserError("state of a waterfill schedule: damaged (it is not a state's text)");
}

// What decisions begin with.
void WaterfillBits::expect_sound() const {
  const auto expect = [](bool condition) {
    if (!condition)
      throw UserError(
          "state of a waterfill schedule: not of this schedule; resume with the one it was saved by");
  };
  expect(loop_.looks >= 0 && loop_.looks <= intervals_.last());
  expect(loop_.sensitivity.size() == chosen_.size() && loop_.weight >= 0);
  expect(loop_.weight == 0 || is_sound(loop_.sensitivity));
  const bool is_last = loop_.looks == intervals_.last();
  expect(loop_.now.size() == (is_last ? 0 : chosen_.size()));
  for (const int bits : loop_.now) expect(bits >= spending_.range.low && bits <= spending_.range.high);
  const std::int64_t steps = intervals_.steps - intervals_.begin(loop_.looks);
  expect(loop_.left >= least_of(steps) && loop_.left <= most_of(steps));
  if (is_last) return;
  const std::int64_t later = intervals_.steps - intervals_.end(loop_.looks),
                     left = loop_.left - intervals_.length(loop_.looks) * cost_of(loop_.now);
  expect(left >= least_of(later) && left <= most_of(later));
}

}  // namespace lowtide
